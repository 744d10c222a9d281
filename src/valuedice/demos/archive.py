"""Reads arrays from an .npz that may be damaged or hostile; never allocates more than the file can hold."""

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
"""Most bytes that one compressed byte can expand to, by method: a deflate match takes 2 bits and yields 258."""
ORDINARY = 100
"""Highest compression ratio of recorded numbers; above `SMALL` bytes, a higher ratio counts as an attack."""
SMALL = 1 << 30
HEADER = 10_100
"""Bytes that are enough for any header that numpy accepts."""


def check_sizes(path: str | os.PathLike[str], members: Iterable[zipfile.ZipInfo]) -> None:
    """Refuses sizes that the file cannot hold, before anything of that size is allocated."""
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
            f"{path}: its {size:,} bytes inflate to {inflated:,}, more than recorded numbers do; "
            "if you trust it, save it again without compression (numpy.savez)"
        )


def read_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """Reads one array. The header must agree with the size of the member; objects are refused before reading."""
    with archive.open(member) as file, warnings.catch_warnings():
        # Numpy warns about headers written by Python 2, and Python about the contents of forged ones.
        warnings.simplefilter("ignore")
        head = io.BytesIO(file.read(HEADER))
        version = npy.read_magic(head)
        # Version 3 is only for structured arrays.
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{member.filename!r} has version {version} of numpy's format")
        read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read_header(head)
        if dtype.hasobject:
            raise InputError(
                f"{archive.filename}: holds pickled objects, which could run code when read; "
                "save it again with plain numeric arrays (no dtype=object)"
            )
        if head.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
            raise ValueError(
                f"{member.filename!r} has {member.file_size:,} bytes, its header promises another size"
            )
        file.seek(0)
        return npy.read_array(file, allow_pickle=False)
