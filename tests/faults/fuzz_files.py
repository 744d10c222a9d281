"""Files for the loaders to be tried on: small valid ones, what forges them, and hostile ones made by hand."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from valuedice.policy import FORMAT, Policy
from valuedice.types import Normalizer, Spec

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
ENDS = np.array([0, 1, 0, 0, 1, 0], bool)
ARRAYS = {
    "observations": ROWS,
    "actions": ROWS[:, :1],
    "next_observations": ROWS + 2,
    "terminations": ENDS,
    "truncations": np.zeros(6, bool),
}
CANARY = Path(tempfile.gettempdir()) / f"valuedice-canary-{os.getpid()}"
SPEC = Spec(obs_size=3, action_size=2, low=(-1.0, 0.5), high=(3.0, 0.75))


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self):
        return Path.touch, (CANARY,)


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def raw_npy(header: str, body: bytes = b"", version: int = 1, length: int | None = None) -> bytes:
    """An array file with any text for its header, and any length told of it."""
    size = struct.pack("<H" if version == 1 else "<I", len(header) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + header.encode() + body


def described(descr: str, shape: str, body: bytes = bytes(48), fortran: str = "False") -> bytes:
    return raw_npy(f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}}}\n", body)


def pack(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as target:
        for name, content in members.items():
            target.writestr(zipfile.ZipInfo(name), content, method)
    return file.getvalue()


def demos_file(method: int = zipfile.ZIP_STORED, **changes: np.ndarray | bytes) -> bytes:
    """A small valid file, but for what is changed."""
    members: dict[str, np.ndarray | bytes] = ARRAYS | changes
    packed = {f"{name}.npy": x if isinstance(x, bytes) else npy(np.asarray(x)) for name, x in members.items()}
    return pack(packed, method)


FIELDS = {"flags": (8, "<H"), "method": (10, "<H"), "crc": (16, "<I"), "packed": (20, "<I"), "size": (24, "<I")}


def forge(content: bytes, **fields: int) -> bytes:
    """Overwrites what the central directory says of the first member."""
    forged = bytearray(content)
    start = content.index(b"PK\x01\x02")
    for name, value in fields.items():
        offset, form = FIELDS[name]
        struct.pack_into(form, forged, start + offset, value)
    return bytes(forged)


def alike(rows: int, dtype: Any = np.int8, ends: int = 0) -> bytes:
    """So many equal rows, a few kB when compressed."""
    column, flags = np.zeros((rows, 1), dtype), np.full(rows, ends, bool)
    arrays = dict.fromkeys(("observations", "next_observations"), column) | {"terminations": flags}
    return demos_file(zipfile.ZIP_DEFLATED, **arrays, actions=column.astype(np.float16), truncations=~flags & False)


def demos_forgeries() -> dict[str, tuple[bytes, bool]]:
    """By name, the content of a file and whether it loads."""
    huge, many = f"({10**12}, 2)", "['<f4'" + ", '<f4'" * 600 + "]"
    signalling = np.full((6, 2), 0x7FF0000000000001, np.uint64).view(np.float64)
    of_first = {
        "shape beyond the member": described("'<f4'", huge),
        "shape beyond int64": described("'<f4'", f"({10**30}, 2)"),
        "shape that overflows to the right size": described("'<f4'", f"({2**62}, 4, 12)"),
        "negative shape": described("'<f4'", "(-6, -2)"),
        "shape of floats": described("'<f4'", "(6.0, 2)"),
        "no rows, many columns": described("'<f4'", f"(0, {10**12})", b""),
        "many rows, no columns": described("'<f4'", f"({10**12}, 0)", b""),
        "items without size": described("'|V0'", huge, b""),
        "items of a gigabyte": described("('<f4', (250000000,))", "(6, 2)"),
        "pickled objects": npy(np.array([[Bomb()]] * 6, object)),
        "objects by name": described("'|O'", "(6,)", pickle.dumps([Bomb()] * 6)),
        "objects in a field": described("[('a', '|O')]", "(6,)"),
        "a pickle for an array": pickle.dumps(Bomb()),
        "structured": described("[('a', '<f4'), ('b', '<f4')]", "(6,)"),
        "many fields": described(many, "(6,)"),
        "datetime": npy(np.zeros((6, 2), "M8[s]")),
        "strings": npy(np.full((6, 2), "a")),
        "complex": npy(np.zeros((6, 2), complex)),
        "void": npy(np.zeros((6, 2), "V4")),
        "header of a gigabyte": raw_npy("{}", version=2, length=1 << 30),
        "unknown version": raw_npy("{}", version=9),
        "code in the header": raw_npy(f"__import__('pathlib').Path('{CANARY}').touch()"),
        "deep header": raw_npy("(" * 9000),
        "deep operators": raw_npy("-" * 900 + "1"),
        "escape in the header": described("'<f4'", r"(6, '\d')"),
        "signalling NaN": npy(signalling),
        "infinity": npy(np.full((6, 2), np.inf)),
        "empty": npy(ROWS[:0]),
        "zero-dimensional": npy(np.float32(1)),  # pyright: ignore[reportArgumentType]
        "no bytes": b"",
    }
    refused = {name: demos_file(observations=content) for name, content in of_first.items()}
    member = demos_file(zipfile.ZIP_DEFLATED)
    rows = 2**29 - 64
    promised = described("'<f4'", f"({rows}, 2)", b"")
    promise, told = demos_file(observations=promised), len(promised) + 8 * rows
    squeezed = npy(np.zeros((10**6, 70), np.int8))
    refused |= {
        "size told by header and directory": forge(promise, size=told),
        "packed size told as well": forge(promise, size=told, packed=told),
        "expansion beyond deflate": forge(demos_file(zipfile.ZIP_DEFLATED), size=10**9),
        "wrong checksum": forge(member, crc=1),
        "encrypted": forge(member, flags=1),
        "unknown method": forge(member, method=99),
        "bzip2 bomb": demos_file(zipfile.ZIP_BZIP2, observations=squeezed),
        "lzma bomb": demos_file(zipfile.ZIP_LZMA),
        "bomb that hides its size": forge(
            demos_file(zipfile.ZIP_DEFLATED, observations=bytes(40_000_000)), size=99
        ),
        "traversal": pack({f"../../{name}.npy": npy(array) for name, array in ARRAYS.items()}),
        "long names": pack({f"{i}{'x' * 60_000}": b"" for i in range(20)}),
        "names of many lines": pack({str(i) + "x\n" * 30_000: b"" for i in range(20)}),
        "a million episodes": alike(1_000_000, ends=1),
        "an action of 10**12": demos_file(actions=np.full(6, 10**12)),
        "an action of 2**63": demos_file(actions=np.full(6, 2**63, np.uint64)),
        "a pickle": pickle.dumps(Bomb()),
        "NaN everywhere": demos_file(zipfile.ZIP_DEFLATED, **{k: np.full((10**6, 1), np.nan) for k in ARRAYS}),
    }
    loads = {
        "fortran order": npy(np.asfortranarray(ROWS)),
        "float16": npy(ROWS.astype(np.float16)),
        "longdouble": npy(ROWS.astype(np.longdouble)),
        "big endian": npy(ROWS.astype(">f8")),
        "header of Python 2": described("'<f4'", "(6L, 2L)", ROWS.tobytes()),
    }
    both_names = pack({f"{name}{end}": npy(array) for name, array in ARRAYS.items() for end in ("", ".npy")})
    whole = {name: demos_file(observations=content) for name, content in loads.items()}
    whole |= {"a million rows in one episode": alike(1_000_000), "names with and without .npy": both_names}
    return {name: (x, False) for name, x in refused.items()} | {name: (x, True) for name, x in whole.items()}


def small_policy(discrete: bool = False) -> bytes:
    outputs = 4
    spec = Spec(3, outputs, discrete=True, first_action=5) if discrete else SPEC
    rng = np.random.default_rng(0)
    layers = tuple((rng.normal(size=(m, n)), rng.normal(size=n)) for m, n in ((3, 5), (5, outputs)))
    return Policy(layers, Normalizer(np.zeros(3), np.ones(3)), spec).to_bytes()


def opened(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file and what follows it."""
    stop = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:stop]), content[stop:]


def closed(header: Any, data: bytes) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def policy_file(about: Any = None, tensor: Any = None, name: str = "obs_mean", discrete: bool = False) -> bytes:
    """A small valid file, but for its description (changes, or a text for it) or one tensor (likewise)."""
    header, data = opened(small_policy(discrete))
    described = json.loads(header["__metadata__"][FORMAT]) | (about if isinstance(about, dict) else {})
    header["__metadata__"][FORMAT] = about if isinstance(about, str) else json.dumps(described)
    header[name] = (header[name] | tensor) if isinstance(tensor, dict) else tensor or header[name]
    return closed(header, data)


def with_numbers(name: str, value: float, content: bytes | None = None) -> bytes:
    """One tensor filled with one number."""
    header, data = opened(content or small_policy())
    start, stop = header[name]["data_offsets"]
    return closed(header, data[:start] + np.full((stop - start) // 4, value, "<f4").tobytes() + data[stop:])


def policy_forgeries() -> dict[str, tuple[bytes, bool]]:
    """By name, the content of a file and whether it loads."""
    header, data = opened(small_policy())
    text = json.dumps(header)
    twice = text.replace('"obs_std"', '"obs_mean"').encode()
    refused = {f"layers {n!r}": policy_file({"layers": n}) for n in (10**9, -1, 0, 1.0, "2", None, [2], 10**400)}
    refused |= {f"clip {x!r}": policy_file({"obs_clip": x}) for x in (10**400, 0, -1, float("nan"), "x", None, [])}
    firsts = (10**30, 2**63, 0.5, "x", None, True, [0])
    refused |= {f"first {x!r}": policy_file({"first_action": x}, discrete=True) for x in firsts}
    refused |= {f"kind {x!r}": policy_file({"kind": x}) for x in ("beta", None, [], {})}
    refused |= {f"text {x[:5]!r}": policy_file(x) for x in ("[" * 10**5, "", "[]", "1", '"a"', "{}", "null", "NaN")}
    kinds = ("BF16", "F8_E4M3", "F8_E5M2", "F4", "F64", "I32", "C64", "BOOL", "F99", "", 3)
    refused |= {f"dtype {kind!r}": policy_file(tensor={"dtype": kind}) for kind in kinds}
    sizes = {"F8_E4M3": [12], "F8_E5M2": [12], "F8_E8M0": [12], "F4": [24], "BF16": [6], "I32": [3], "U8": [12]}
    refused |= {f"{k} that fits": policy_file(tensor={"dtype": k, "shape": s}) for k, s in sizes.items()}
    shapes = ([1, 3], [3, 1], [], [10**12], [-3], [2**63, 2**63], [0, 2**62], ["a\nb"], [1] * 70 + [3], "3", None)
    refused |= {f"shape {str(shape)[:20]}": policy_file(tensor={"shape": shape}) for shape in shapes}
    refused |= {
        f"bounds {shape}": policy_file(tensor={"shape": shape}, name="action_low") for shape in ([2, 1], [1, 2])
    }
    offsets = ([0, 10**15], [-1, 11], [12, 0], [4, 16], [0], "x", [0.5, 1], [2**64, 2**65])
    refused |= {f"offsets {x}": policy_file(tensor={"data_offsets": x}) for x in offsets}
    names = ("obs_mean", "obs_std", "layer0.kernel", "layer1.bias", "action_low")
    refused |= {f"{name} {x}": with_numbers(name, x) for name in names for x in (np.nan, np.inf)}
    refused |= {"deviation 0": with_numbers("obs_std", 0), "deviation -1": with_numbers("obs_std", -1)}
    wide = with_numbers("action_high", 3e38, with_numbers("action_low", -3e38))
    refused |= {"bounds crossed": with_numbers("action_low", 5), "bounds too far": wide}
    refused |= {
        "length beyond the file": (2**63).to_bytes(8, "little") + small_policy()[8:],
        "length of 90 MB": (90_000_000).to_bytes(8, "little") + small_policy()[8:],
        "names twice": closed(twice, data),
        "deep header": closed(b"[" * 10**5, b""),
        "deep metadata": closed(b'{"__metadata__":' + b'{"a":' * 10**4, b""),
        "no metadata": closed({k: v for k, v in header.items() if k != "__metadata__"}, data),
        "metadata of numbers": closed(header | {"__metadata__": {FORMAT: 5}}, data),
        "metadata a list": closed(header | {"__metadata__": [FORMAT]}, data),
        "format with lines": closed(header | {"__metadata__": {"valuedice-policy-\n" * 1000: "x"}}, data),
        "bytes at the end": small_policy() + b"more",
        "a pickle": pickle.dumps(Bomb()),
    }
    loads = {
        "continuous": small_policy(),
        "discrete": small_policy(True),
        "tiny clip": policy_file({"obs_clip": 1e-9}),
    }
    return {name: (x, False) for name, x in refused.items()} | {name: (x, True) for name, x in loads.items()}


DEMOS, POLICIES = demos_forgeries(), policy_forgeries()
