"""Small valid files of every kind that this library reads, ways to forge them, and hostile ones made by hand."""

from __future__ import annotations

import hashlib
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
from small import small

from valuedice.demos import load_demos
from valuedice.policy import FORMAT, Policy
from valuedice.replay import Replay
from valuedice.training.checkpoint import Checkpoints
from valuedice.training.config import TrainConfig
from valuedice.training.stored import StoredConfig
from valuedice.types import Normalizer, Spec

ROWS = np.arange(12, dtype=np.float32).reshape(6, 2)
ENDS = np.array([0, 1, 0, 0, 1, 0], bool)
NEVER = np.zeros(6, bool)
ARRAYS: dict[str, np.ndarray] = {
    "observations": ROWS,
    "actions": ROWS[:, :1],
    "next_observations": ROWS + 2,
    "terminations": ENDS,
    "truncations": NEVER,
}
DIALECTS: tuple[dict[str, np.ndarray], ...] = (
    ARRAYS,
    {"states": ROWS, "actions": ENDS.astype(np.int64), "next_states": ROWS + 2, "dones": ENDS},
    {"observations": ROWS, "actions": ROWS, "terminals": ENDS, "timeouts": NEVER, "rewards": ROWS[:, 0]},
)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
CANARY = Path(tempfile.gettempdir()) / f"valuedice-canary-{os.getpid()}"
Verdict = bool | str
"""Whether a file loads, or what the line that refuses it says."""


class Bomb:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (CANARY,)


PICKLE = pickle.dumps(Bomb())


# Demonstrations: a zip archive of arrays.


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


def raw_npy(header: str, body: bytes = b"", version: int = 1, length: int | None = None) -> bytes:
    """An array file with any text as its header, and any length of it."""
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
    """A small valid file with these changes."""
    members: dict[str, Any] = {**ARRAYS, **changes}
    return pack({f"{name}.npy": x if isinstance(x, bytes) else npy(x) for name, x in members.items()}, method)


FIELDS = {"flags": (8, "<H"), "method": (10, "<H"), "crc": (16, "<I"), "packed": (20, "<I"), "size": (24, "<I")}


def forge(content: bytes, **fields: int) -> bytes:
    """Overwrites what the central directory says about the first member."""
    forged = bytearray(content)
    start = content.index(b"PK\x01\x02")
    for name, value in fields.items():
        offset, form = FIELDS[name]
        struct.pack_into(form, forged, start + offset, value)
    return bytes(forged)


def alike(rows: int, ends: int = 0) -> bytes:
    """So many equal rows, a few kB when compressed."""
    column, flags = np.zeros((rows, 1), np.int8), np.full(rows, ends, bool)
    arrays = {"observations": column, "next_observations": column, "actions": column.astype(np.float16)}
    return demos_file(zipfile.ZIP_DEFLATED, **arrays, terminations=flags, truncations=~flags & False)


def demos_forgeries() -> dict[str, tuple[bytes, Verdict]]:
    huge, many = f"({10**12}, 2)", "['<f4'" + ", '<f4'" * 600 + "]"
    observations: dict[str, tuple[bytes, Verdict]] = {
        "shape beyond the member": (described("'<f4'", huge), "header promises another size"),
        "shape beyond int64": (described("'<f4'", f"({10**30}, 2)"), ""),
        "shape that overflows to the right size": (described("'<f4'", f"({2**62}, 4, 12)"), ""),
        "negative shape": (described("'<f4'", "(-6, -2)"), ""),
        "shape of floats": (described("'<f4'", "(6.0, 2)"), ""),
        "no rows, many columns": (described("'<f4'", f"(0, {10**12})", b""), ""),
        "many rows, no columns": (described("'<f4'", f"({10**12}, 0)", b""), ""),
        "items without size": (described("'|V0'", huge, b""), ""),
        "items of a gigabyte": (described("('<f4', (250000000,))", "(6, 2)"), ""),
        "pickled objects": (npy(np.array([[Bomb()]] * 6, object)), "pickled objects"),
        "objects by name": (described("'|O'", "(6,)", pickle.dumps([Bomb()] * 6)), "pickled objects"),
        "objects in a field": (described("[('a', '|O')]", "(6,)"), "pickled objects"),
        "a pickle for an array": (PICKLE, ""),
        "structured": (described("[('a', '<f4'), ('b', '<f4')]", "(6,)"), ""),
        "many fields": (described(many, "(6,)"), ""),
        "complex": (npy(np.zeros((6, 2), complex)), "not numbers"),
        "void": (npy(np.zeros((6, 2), "V4")), "not numbers"),
        "header of a gigabyte": (raw_npy("{}", version=2, length=1 << 30), ""),
        "unknown version": (raw_npy("{}", version=9), "version"),
        "code in the header": (raw_npy(f"__import__('pathlib').Path('{CANARY}').touch()"), ""),
        "deep header": (raw_npy("(" * 9000), ""),
        "deep operators": (raw_npy("-" * 900 + "1"), ""),
        "escape in the header": (described("'<f4'", r"(6, '\d')"), ""),
        "signalling NaN": (npy(np.full((6, 2), 0x7FF0000000000001, np.uint64).view(np.float64)), "NaN at row 0"),
        "no bytes": (b"", ""),
        "fortran order": (npy(np.asfortranarray(ROWS)), True),
        "float16": (npy(ROWS.astype(np.float16)), True),
        "longdouble": (npy(ROWS.astype(np.longdouble)), True),
        "big endian": (npy(ROWS.astype(">f8")), True),
        "header of Python 2": (described("'<f4'", "(6L, 2L)", ROWS.tobytes()), True),
    }
    member, rows = demos_file(zipfile.ZIP_DEFLATED), 2**29 - 64
    promised = described("'<f4'", f"({rows}, 2)", b"")
    promise, told = demos_file(observations=promised), len(promised) + 8 * rows
    hidden = demos_file(zipfile.ZIP_DEFLATED, observations=bytes(40_000_000))
    both_names = pack({f"{name}{end}": npy(array) for name, array in ARRAYS.items() for end in ("", ".npy")})
    return {name: (demos_file(observations=x), verdict) for name, (x, verdict) in observations.items()} | {
        "size told by header and directory": (forge(promise, size=told), "cannot hold"),
        "packed size told as well": (forge(promise, size=told, packed=told), "cannot fit"),
        "expansion beyond deflate": (forge(member, size=10**9), "cannot hold"),
        "wrong checksum": (forge(member, crc=1), ""),
        "encrypted": (forge(member, flags=1), ""),
        "unknown method": (forge(member, method=99), "method 99"),
        "bzip2 bomb": (demos_file(zipfile.ZIP_BZIP2, observations=np.zeros((10**6, 70), np.int8)), "method 12"),
        "lzma bomb": (demos_file(zipfile.ZIP_LZMA), "method 14"),
        "bomb that hides its size": (forge(hidden, size=99), ""),
        "traversal": (pack({f"../../{name}.npy": npy(array) for name, array in ARRAYS.items()}), "no known format"),
        "long names": (pack({f"{i}{'x' * 60_000}": b"" for i in range(20)}), "no known format"),
        "names of many lines": (pack({str(i) + "x\n" * 30_000: b"" for i in range(20)}), "no known format"),
        "a million episodes": (alike(1_000_000, ends=1), "mark only the last step"),
        "an action of 10**12": (demos_file(actions=np.full(6, 10**12)), "discrete action 1000000000000"),
        "an action of 2**63": (demos_file(actions=np.full(6, 2**63, np.uint64)), "discrete action"),
        "a pickle": (PICKLE, "a pickle"),
        "a million rows in one episode": (alike(1_000_000), True),
        "names with and without .npy": (both_names, True),
    }


# Policies and checkpoints: tensors behind a header of JSON. A run's configuration: JSON alone.


def small_policy(discrete: bool = False) -> bytes:
    spec = Spec(3, 4, discrete=True, first_action=5) if discrete else Spec(3, 2, low=(-1.0, 0.5), high=(3.0, 0.75))
    rng = np.random.default_rng(0)
    layers = tuple((rng.normal(size=(m, n)), rng.normal(size=n)) for m, n in ((3, 5), (5, 4)))
    return Policy(layers, Normalizer(np.zeros(3), np.ones(3)), spec).to_bytes()


def opened(content: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and what follows it."""
    stop = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:stop]), content[stop:]


def closed(header: Any, data: bytes) -> bytes:
    # Sorted: safetensors writes metadata in random order, and the same files are to be tried every time.
    text = header if isinstance(header, bytes) else json.dumps(header, sort_keys=True).encode()
    return len(text).to_bytes(8, "little") + text + data


def signed(content: bytes) -> bytes:
    """As the state of a checkpoint, with the right checksum."""
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


def slot_files() -> tuple[bytes, bytes]:
    """The two files of a checkpoint's slot: the state, without its checksum, and the rows."""
    replay = Replay(Spec(1, 1, low=(-1.0,), high=(1.0,)), 8)
    for row in range(5):
        obs, action = np.full(1, row), np.zeros(1)
        replay.add(obs, action, obs + 1, terminated=False, truncated=row == 4)
    with tempfile.TemporaryDirectory() as folder:
        Checkpoints(Path(folder)).save({"learner/x": np.arange(4.0)}, {"done": 5}, replay)
        slot = Path(folder) / "a"
        _, _, content = (slot / "state").read_bytes().partition(b"\n")
        return closed(*opened(content)), (slot / "rows-0").read_bytes()


STATE, SLOT_ROWS = slot_files()


def config_file(name: str) -> bytes:
    """The `config.json` of a run."""
    algorithm, demos = small(name), load_demos("pendulum", 1)
    config = TrainConfig("pendulum", "Pendulum-v1", steps=24).resolved(algorithm)
    return json.dumps(StoredConfig.of(algorithm, config, demos, None).as_json()).encode()


def policy_file(about: Any = None, tensor: Any = None, name: str = "obs_mean", discrete: bool = False) -> bytes:
    """A small valid file with a changed description (changes, or a text for it) or tensor (likewise)."""
    header, data = opened(small_policy(discrete))
    description = json.loads(header["__metadata__"][FORMAT]) | (about if isinstance(about, dict) else {})
    header["__metadata__"][FORMAT] = about if isinstance(about, str) else json.dumps(description)
    header[name] = (header[name] | tensor) if isinstance(tensor, dict) else tensor or header[name]
    return closed(header, data)


def with_numbers(name: str, value: float, content: bytes | None = None) -> bytes:
    """One tensor filled with one number."""
    header, data = opened(content or small_policy())
    start, stop = header[name]["data_offsets"]
    return closed(header, data[:start] + np.full((stop - start) // 4, value, "<f4").tobytes() + data[stop:])


def policy_forgeries() -> dict[str, tuple[bytes, Verdict]]:
    header, data = opened(small_policy())
    about: dict[str, tuple[Any, ...]] = {"layers": (10**9, -1, 0, 1.0, "2", None, [2], 10**400)}
    about |= {"obs_clip": (10**400, 0, -1, float("nan"), "x", None, []), "kind": ("beta", None, [], {})}
    refused = {f"{key} {value!r}": policy_file({key: value}) for key, values in about.items() for value in values}
    firsts = (10**30, 2**63, 0.5, "x", None, True, [0])
    refused |= {f"first {x!r}": policy_file({"first_action": x}, discrete=True) for x in firsts}
    texts = ("[" * 10**5, "", "[]", "1", '"a"', "{}", "null", "NaN", PICKLE.decode("latin-1"))
    refused |= {f"text {text[:5]!r}": policy_file(text) for text in texts}
    tensor: dict[str, tuple[Any, ...]] = {
        "dtype": ("BF16", "F8_E4M3", "F8_E5M2", "F4", "F64", "I32", "C64", "BOOL", "F99", "", 3),
        "shape": ([1, 3], [3, 1], [], [10**12], [-3], [2**63, 2**63], [0, 2**62], ["a\nb"], [1] * 70 + [3], "3"),
        "data_offsets": ([0, 10**15], [-1, 11], [12, 0], [4, 16], [0], "x", [0.5, 1], [2**64, 2**65]),
    }
    refused |= {f"{key} {x!r:.40}": policy_file(tensor={key: x}) for key, values in tensor.items() for x in values}
    sizes = {"F8_E4M3": [12], "F8_E5M2": [12], "F8_E8M0": [12], "F4": [24], "BF16": [6], "I32": [3], "U8": [12]}
    refused |= {f"{k} that fits": policy_file(tensor={"dtype": k, "shape": s}) for k, s in sizes.items()}
    refused |= {f"bounds {s}": policy_file(tensor={"shape": s}, name="action_low") for s in ([2, 1], [1, 2])}
    names = ("obs_mean", "obs_std", "layer0.kernel", "layer1.bias", "action_low")
    refused |= {f"{name} {x}": with_numbers(name, x) for name in names for x in (np.nan, np.inf)}
    refused |= {
        "deviation 0": with_numbers("obs_std", 0),
        "deviation -1": with_numbers("obs_std", -1),
        "bounds crossed": with_numbers("action_low", 5),
        "bounds too far": with_numbers("action_high", 3e38, with_numbers("action_low", -3e38)),
        "length beyond the file": (2**63).to_bytes(8, "little") + small_policy()[8:],
        "length of 90 MB": (90_000_000).to_bytes(8, "little") + small_policy()[8:],
        "names twice": closed(json.dumps(header).replace('"obs_std"', '"obs_mean"').encode(), data),
        "deep header": closed(b"[" * 10**5, b""),
        "deep metadata": closed(b'{"__metadata__":' + b'{"a":' * 10**4, b""),
        "no metadata": closed({k: v for k, v in header.items() if k != "__metadata__"}, data),
        "metadata of numbers": closed(header | {"__metadata__": {FORMAT: 5}}, data),
        "metadata a list": closed(header | {"__metadata__": [FORMAT]}, data),
        "format with lines": closed(header | {"__metadata__": {"valuedice-policy-\n" * 1000: "x"}}, data),
        "bytes at the end": small_policy() + b"more",
        "a pickle": PICKLE,
    }
    forgeries: dict[str, tuple[bytes, Verdict]] = {name: (x, "") for name, x in refused.items()}
    return forgeries | {"discrete": (small_policy(True), True), "clip": (policy_file({"obs_clip": 1e-9}), True)}


DEMOS, POLICIES = demos_forgeries(), policy_forgeries()
