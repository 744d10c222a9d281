"""Mutated files, drawn by hypothesis: a few in `make test`, thousands in `make test-faults`."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from fuzz_files import (
    ARRAYS,
    DEMOS,
    ENDS,
    FIELDS,
    POLICIES,
    ROWS,
    closed,
    demos_file,
    described,
    forge,
    npy,
    opened,
    pack,
    small_policy,
)
from fuzz_property import Tally, use_demos, use_policy
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from valuedice.checkpoint import Checkpoints, read_slot
from valuedice.policy import FORMAT
from valuedice.replay import Replay
from valuedice.types import Spec

AUTHORS = {"states": ROWS, "actions": ENDS.astype(np.int64), "next_states": ROWS + 2, "dones": ENDS}
D4RL = {"observations": ROWS, "actions": ROWS, "terminals": ENDS, "timeouts": ~ENDS & False, "rewards": ROWS[:, 0]}
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
NUMBERS = (0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 10**6, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1)


@cache
def dialects() -> tuple[bytes, ...]:
    """A small valid file of each dialect, plain and compressed."""
    files = [{f"{key}.npy": npy(array) for key, array in arrays.items()} for arrays in (ARRAYS, AUTHORS, D4RL)]
    return tuple(pack(members, method) for members in files for method in METHODS)


@cache
def policies() -> tuple[bytes, ...]:
    return small_policy(), small_policy(discrete=True)


@cache
def checkpoint() -> tuple[bytes, bytes]:
    """The two files of a slot: state, and rows."""
    spec = Spec(1, 1, low=(-1.0,), high=(1.0,))
    replay = Replay(spec, 8)
    for row in range(5):
        obs, action = np.full(1, row), np.zeros(1)
        replay.add(obs, action, obs + 1, terminated=False, truncated=row == 4)
    with TemporaryDirectory() as folder:
        Checkpoints(Path(folder)).save({"learner/x": np.arange(4.0)}, {"done": 5}, replay)
        slot = Path(folder) / "a"
        _, _, content = (slot / "state").read_bytes().partition(b"\n")
        header, data = opened(content)
        # Safetensors writes metadata in random order, and the same files are to be tried every time.
        content = closed(json.dumps(header, sort_keys=True).encode(), data)
        return signed(content), (slot / "rows-0").read_bytes()


def signed(content: bytes) -> bytes:
    """As a state whose checksum is right."""
    return hashlib.sha256(content).hexdigest().encode() + b"\n" + content


@st.composite
def damaged(draw: st.DrawFn, originals: Callable[[], tuple[bytes, ...]]) -> bytes:
    """A valid file with one to four injuries; a splice takes the rest from another file."""
    content = draw(st.sampled_from(originals()))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        kind = draw(st.sampled_from(["flip", "set", "insert", "delete", "number", "repeat", "cut", "splice"]))
        rest = content[at:]
        if kind == "flip":
            rest = bytes([rest[0] ^ (1 << draw(st.integers(0, 7)))]) + rest[1:] if rest else b""
        elif kind == "set":
            rest = draw(st.binary(min_size=1, max_size=1)) + rest[1:]
        elif kind == "insert":
            rest = draw(st.binary(min_size=1, max_size=9)) + rest
        elif kind == "delete":
            rest = rest[draw(st.integers(1, 64)) :]
        elif kind == "number":
            size = draw(st.sampled_from([1, 2, 4, 8]))
            number = draw(st.sampled_from(NUMBERS)) % (1 << 8 * size)
            rest = number.to_bytes(size, "little") + rest[size:]
        elif kind == "repeat":
            rest = rest[: draw(st.integers(1, 64))] + rest
        elif kind == "cut":
            rest = b""
        else:
            other = draw(st.sampled_from(originals()))
            rest = other[draw(st.integers(0, len(other))) :]
        content = content[:at] + rest
    return content


DESCRS = [
    "'<f4'",
    "'>f8'",
    "'<f2'",
    "'<f16'",
    "'<i8'",
    "'|u1'",
    "'|b1'",
    "'<c8'",
    "'|O'",
    "'<M8[s]'",
    "'<U3'",
    "'|S0'",
]
DESCRS += ["'|V4'", "'|a3'", "'nonsense'", "''", "None", "7", "[('a', '<f4')]", "[('', '|V4')]", "('<f4', (2,))"]
SIDES = st.sampled_from([-1, 0, 1, 2, 5, 6, 12, 10**6, 10**12, 2**63, "6.0", "'6'", "True", "None", "6L"])
SHAPES = st.one_of(
    st.sampled_from(["(6, 2)", "(6,)", "(6, 1)", "()", "[6, 2]", "6", "None"]),
    st.lists(SIDES, max_size=4).map(lambda sides: f"({''.join(f'{side}, ' for side in sides)})"),
)


@st.composite
def forged_member(draw: st.DrawFn) -> bytes:
    """An array with a header that may say anything, over numbers that may be anything."""
    body = draw(st.one_of(st.sampled_from([6, 12, 24, 48, 96]).map(bytes), st.binary(max_size=100)))
    return described(
        draw(st.sampled_from(DESCRS)), draw(SHAPES), body, draw(st.sampled_from(["False", "True", "0"]))
    )


odd_numbers = st.sampled_from([0, 1, -1, 0.5, np.nan, np.inf, -np.inf, 1e39, 1e-45, 300])
odd_shapes = st.sampled_from([(6,), (6, 2), (6, 1), (6, 0), (0,), (0, 2), (), (5, 2), (6, 2, 1), (1, 6), (7,)])
odd_dtypes = st.sampled_from(["f2", ">f4", "f8", "i1", "u8", "?", "c8", "U3", "M8[s]", "S2", "V3"])


@st.composite
def odd_array(draw: st.DrawFn) -> bytes:
    """Well-formed, but perhaps not what belongs there."""
    array = np.full(draw(odd_shapes), draw(odd_numbers))
    with np.errstate(all="ignore"):
        kind = np.dtype(draw(odd_dtypes))
        return npy(np.zeros(array.shape, kind) if kind.kind in "MVS" else array.astype(kind))


@st.composite
def forged_demos(draw: st.DrawFn) -> bytes:
    """A well-formed archive with wrong arrays, names or numbers in its directory."""
    arrays = draw(st.sampled_from([ARRAYS, AUTHORS, D4RL]))
    members = {f"{key}.npy": npy(array) for key, array in arrays.items()}
    for _ in range(draw(st.integers(0, 2))):
        members[draw(st.sampled_from(sorted(members)))] = draw(st.one_of(forged_member(), odd_array()))
    if draw(st.integers(0, 5)) == 0:
        name = draw(st.sampled_from(sorted(members)))
        end = draw(st.sampled_from(["", "/", ".npy.npy", "\n", "é", "\0x"]))
        members[draw(st.sampled_from(["../", "/", ""])) + name.removesuffix(".npy") + end] = members.pop(name)
    content = pack(members, draw(st.sampled_from(METHODS)))
    fields = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=2, unique=True))
    small = {"flags", "method"}
    return forge(content, **{f: draw(st.sampled_from(NUMBERS)) % (2**16 if f in small else 2**32) for f in fields})


texts = st.text("aé5-\n\x1b\u2028", max_size=5)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.sampled_from([*NUMBERS, -1, 10**30]), st.floats(), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=4,
)
tensor_values = st.one_of(
    json_values,
    st.sampled_from(["F16", "F32", "F64", "BF16", "F8_E4M3", "F4", "I8", "U64", "BOOL", "C64"]),
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 12, 20, 2**40, 2**63]), max_size=4),
)


@st.composite
def forged_policy(draw: st.DrawFn) -> bytes:
    """A header of valid JSON that says something else, or numbers that are extreme."""
    header, data = opened(draw(st.sampled_from(policies())))
    about = json.loads(header["__metadata__"][FORMAT])
    names = sorted(set(header) - {"__metadata__"})
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["about", "tensor", "data", "rename", "metadata"]))
        name = draw(st.sampled_from(names))
        if kind == "about":
            about[draw(st.sampled_from(sorted(about)))] = draw(json_values)
        elif kind == "tensor" and isinstance(header.get(name), dict):
            header[name][draw(st.sampled_from(["dtype", "shape", "data_offsets"]))] = draw(tensor_values)
        elif kind == "rename" and name in header:
            header[draw(st.sampled_from([*names, "more", "a\nb"]))] = header.pop(name)
        elif kind == "data":
            at = 4 * draw(st.integers(0, len(data) // 4 - 1))
            number = np.float32(draw(st.floats(width=32))).tobytes()
            data = data[:at] + number + data[at + 4 :]
    header["__metadata__"][FORMAT] = json.dumps(about)
    if draw(st.integers(0, 9)) == 0:
        header["__metadata__"] = draw(json_values)
    return closed(header, data)


@st.composite
def forged_state(draw: st.DrawFn) -> bytes:
    """A state with the right checksum over damaged content or other facts."""
    _, _, content = checkpoint()[0].partition(b"\n")
    if draw(st.booleans()):
        content = draw(damaged(lambda: (content,)))
    else:
        header, data = opened(content)
        facts = json.loads(header["__metadata__"]["facts"])
        facts[draw(st.sampled_from(sorted(facts)))] = draw(json_values)
        header["__metadata__"]["facts"] = json.dumps(facts)
        if draw(st.booleans()):
            header["__metadata__"]["format"] = draw(st.sampled_from(["2", "\n9\n", "0", "x", "", "9" * 5000]))
        content = closed(header, data)
    return signed(content)


def use_state(path: Path) -> None:
    """Reads a slot whose state is that file and whose rows are whole."""
    (path.parent / "rows-0").write_bytes(checkpoint()[1])
    saved = read_slot(path.parent)
    assert saved is not None
    assert saved.number >= 0
    assert all(isinstance(array, np.ndarray) for array in saved.arrays.values())


KINDS: dict[str, tuple[st.SearchStrategy[bytes], Callable[[Path], None], int, int]] = {
    "demonstrations, damaged": (damaged(dialects), use_demos, 50, 1500),
    "demonstrations, forged": (forged_demos(), use_demos, 60, 1500),
    "policies, damaged": (damaged(policies), use_policy, 30, 1000),
    "policies, forged": (forged_policy(), use_policy, 40, 1000),
    "checkpoints, damaged": (damaged(lambda: checkpoint()[:1]), use_state, 10, 300),
    "checkpoints, forged": (forged_state(), use_state, 20, 700),
}
"""Strategy, use, and how many files are tried: at every test, and at length."""


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def fuzz(kind: str, folder: Path, *, at_length: bool) -> Tally:
    """Tries files of a kind, always the same ones."""
    strategy, use, few, many = KINDS[kind]
    tally, path = Tally(), folder / "state"

    @settings(
        max_examples=many if at_length else few,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(strategy)
    def every(content: bytes) -> None:
        tally.attempt(use, written(path, content))

    every()
    return tally


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_file_loads_or_is_refused(kind: str, tmp_path: Path):
    tally = fuzz(kind, tmp_path, at_length=False)
    assert tally.tried >= KINDS[kind][2]
    assert tally.refused


@pytest.mark.parametrize("content", [*dialects(), *policies(), checkpoint()[0], demos_file()])
def test_what_is_mutated_loads_when_it_is_whole(content: bytes, tmp_path: Path):
    path = written(tmp_path / "state", content)
    uses: dict[bytes, Any] = {b"PK": use_demos, checkpoint()[0][:2]: use_state}
    assert Tally().attempt(uses.get(content[:2], use_policy), path)


@pytest.mark.faults
def test_thousands_of_mutated_files_load_or_are_refused(tmp_path: Path):
    tallies = {kind: fuzz(kind, tmp_path, at_length=True) for kind in KINDS}
    hand_made = {"demonstrations, hand-made": (DEMOS, use_demos), "policies, hand-made": (POLICIES, use_policy)}
    for kind, (forgeries, use) in hand_made.items():
        tallies[kind] = Tally()
        for content, loads in forgeries.values():
            assert tallies[kind].attempt(use, written(tmp_path / "state", content)) == loads
    both = [tally for kind, tally in tallies.items() if not kind.startswith("checkpoints")]
    assert sum(len(tally.distinct) for tally in both) >= 2000
    assert all(tally.loaded for kind, tally in tallies.items() if kind.endswith("forged"))
    if folder := os.environ.get("VALUEDICE_FAULTS_REPORT"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        report = {kind: tally.report() for kind, tally in tallies.items()}
        (Path(folder) / "fuzz.json").write_text(json.dumps(report, indent=2) + "\n")
