"""Arrays out of an .npz that may be damaged or hostile: nothing is allocated that the file cannot hold."""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
from collections.abc import Iterable

import numpy as np
from numpy.lib import format as npy

from valuedice.errors import InputError

EXPANSION = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: 1032}
"""Bytes that one byte of a member can stand for, by its method: a deflated match costs 2 bits and gives 258."""
ORDINARY = 100
"""How far recorded numbers are compressed, at most; beyond `SMALL` bytes, more is taken for an attack."""
SMALL = 1 << 30
HEADER = 10_100
"""Bytes that hold any header of numpy's format which numpy itself accepts."""


def check_sizes(path: str | os.PathLike[str], members: Iterable[zipfile.ZipInfo]) -> None:
    """Refuse sizes that the file cannot hold, before anything is made of that size."""
    members, size = list(members), os.path.getsize(path)
    for member in members:
        if member.compress_type not in EXPANSION:
            raise InputError(
                f"{path}: {member.filename!r} is compressed by method {member.compress_type}, which numpy does not "
                "write; save the arrays with numpy.savez_compressed"
            )
        if member.file_size > member.compress_size * EXPANSION[member.compress_type]:
            raise ValueError(f"{member.filename!r} cannot hold the {member.file_size:,} bytes that it declares")
    if sum(member.compress_size for member in members) > size:
        raise ValueError(f"its arrays cannot fit into {size:,} bytes")
    inflated = sum(member.file_size for member in members)
    if inflated > max(SMALL, ORDINARY * size):
        raise InputError(
            f"{path}: its {size:,} bytes inflate to {inflated:,}, further than recorded numbers do; "
            "if you trust it, save it again without compression (numpy.savez)"
        )


def read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """One array, whose header agrees with the size of the member; objects are refused before they are read."""
    with archive.open(member) as file, warnings.catch_warnings():
        # Numpy has opinions on headers of Python 2, and Python on what stands in forged ones.
        warnings.simplefilter("ignore")
        head = io.BytesIO(file.read(HEADER))
        version = npy.read_magic(head)
        # Version 3 is for structured arrays alone.
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{member.filename!r} is of version {version} of numpy's format")
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(head)
        if dtype.hasobject:
            raise InputError(
                f"{archive.filename}: holds pickled objects, which could run code when read; "
                "save it again with plain number arrays (no dtype=object)"
            )
        if head.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
            raise ValueError(f"{member.filename!r} has {member.file_size:,} bytes, its header promises others")
        file.seek(0)
        return npy.read_array(file, allow_pickle=False)
