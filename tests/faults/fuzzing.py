"""One table of the files that this library reads, one engine that mutates them, and what must become of each."""

from __future__ import annotations

import json
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from faults import hostile
from hypothesis import strategies as st

from valuedice.commands import run_options
from valuedice.commands.train import train_command
from valuedice.demos import load_demos
from valuedice.errors import InputError
from valuedice.policy import load_policy
from valuedice.training.checkpoint import DamageError, read_slot
from valuedice.training.stored import load_data

Use = Callable[[Path], None]


class Tally:
    """What became of the files that were tried, and what the worst of them cost."""

    def __init__(self) -> None:
        self.distinct: set[bytes] = set()
        self.tried = self.loaded = self.refused = 0
        self.slowest_seconds = self.peak_extra_mb = 0.0

    def report(self) -> dict[str, Any]:
        return vars(self) | {"distinct": len(self.distinct)}

    def attempt(self, use: Use, path: Path, content: bytes) -> str | None:
        """The line that refuses a file; None if it loads. Fails if anything else happens, or if it costs much."""
        path.write_bytes(content)
        refusal: Exception | None = None
        tracemalloc.start(1)
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            # Not as errors: the loaders would catch those.
            warnings.simplefilter("always")
            try:
                use(path)
            except (InputError, DamageError) as error:
                refusal = error
        seconds, extra = time.perf_counter() - begin, tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        assert [str(warning.message) for warning in caught] == []
        assert not hostile.CANARY.exists()
        assert seconds < 5
        assert extra < 64
        self.distinct.add(content)
        self.tried += 1
        self.loaded += refusal is None
        self.refused += refusal is not None
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        self.peak_extra_mb = max(self.peak_extra_mb, extra)
        if refusal is None:
            return None
        assert len(str(refusal).splitlines()) == 1
        assert len(str(refusal)) < 1500
        # Memory that was asked for and not given.
        assert not isinstance(refusal.__context__, MemoryError)
        return str(refusal)


# What it means to load a file.


def use_demos(path: Path) -> None:
    """Loads demonstrations and checks what they promise."""
    demos = load_demos(path, dones_are="truncated")
    for episode in demos.episodes:
        rows = len(episode)
        assert rows > 0
        assert episode.observations.shape == episode.next_observations.shape == (rows, demos.obs_size)
        assert episode.actions.shape == ((rows,) if demos.discrete else (rows, demos.action_size))
        assert episode.actions.dtype == (np.int64 if demos.discrete else np.float32)
        assert np.isfinite(episode.actions).all()
        assert episode.rewards is None or episode.rewards.shape == (rows,)
        for array in (episode.observations, episode.next_observations, episode.rewards):
            assert array is None or (array.dtype == np.float32 and np.isfinite(array).all())


def use_policy(path: Path) -> None:
    """Loads a policy and acts: numbers may be extreme, but actions have the right shape and are within bounds."""
    policy = load_policy(path)
    spec, obs = policy.spec, np.random.default_rng(0).normal(size=(4, policy.spec.obs_size))
    with np.errstate(all="ignore"):
        for given, deterministic in ((obs, True), (obs, False), (obs[0], True), (obs[0], False)):
            actions = policy(given, deterministic, np.random.default_rng(0))
            if spec.discrete:
                assert actions.shape == given.shape[:-1]
                assert ((actions >= spec.first_action) & (actions < spec.first_action + spec.action_size)).all()
            else:
                assert actions.shape == (*given.shape[:-1], spec.action_size)
                low, high = np.asarray(spec.low, np.float32), np.asarray(spec.high, np.float32)
                assert (np.isnan(actions) | ((actions >= low) & (actions <= high))).all()
                assert not np.isnan(actions).all() or not np.isfinite(policy.forward(obs)).all()


def use_state(path: Path) -> None:
    """Reads a slot with this state, under the right checksum (without it nothing is read), and intact rows."""
    path.write_bytes(hostile.signed(path.read_bytes()))
    (path.parent / "rows-0").write_bytes(hostile.SLOT_ROWS)
    saved = read_slot(path.parent)
    assert saved is not None
    assert saved.number >= 0
    assert all(isinstance(array, np.ndarray) for array in saved.arrays.values())


def use_config(path: Path) -> None:
    """Resumes a run with this configuration, up to where its checkpoint would be read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_options, "run_algorithm", lambda algorithm, config: load_data(config.resolved(algorithm)))
        assert train_command(["--resume", str(path.parent), "--quiet"]) == 0


# The engine: bytes, and trees of JSON or of numpy's headers, that have become something else.

NUMBERS = (0, 1, 2, 7, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 10**6, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1)
NAMES = "F16 F32 F64 BF16 F8_E4M3 F4 I8 U64 BOOL <f4 >f8 <f2 <f16 <i8 |u1 |b1 <c8 |O <M8[s] <U3 |S0 |V4 nonsense"
texts = st.one_of(st.text("aé5-\n\x1b\u2028`", max_size=5), st.sampled_from(NAMES.split()))
leaves = st.one_of(st.none(), st.booleans(), st.sampled_from([*NUMBERS, -1, 10**30]), st.floats(), texts)
values = st.one_of(
    st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=2)),
        max_leaves=4,
    ),
    st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 12, 20, 10**12, 2**63]), max_size=4),
)


@st.composite
def damaged(draw: st.DrawFn, originals: tuple[bytes, ...]) -> bytes:
    """A valid file with one to four injuries; a splice takes the rest from another file."""
    content = draw(st.sampled_from(originals))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(content) - 1)))
        kind = draw(st.sampled_from(["flip", "insert", "delete", "number", "repeat", "cut", "splice"]))
        few, rest = draw(st.integers(1, 64)), content[at:]
        if kind == "flip" and rest:
            rest = bytes([rest[0] ^ (1 << few % 8)]) + rest[1:]
        elif kind == "insert":
            rest = draw(st.binary(min_size=1, max_size=9)) + rest
        elif kind == "number":
            size = 1 << few % 4
            rest = (draw(st.sampled_from(NUMBERS)) % (1 << 8 * size)).to_bytes(size, "little") + rest[size:]
        elif kind == "splice":
            other = draw(st.sampled_from(originals))
            rest = other[draw(st.integers(0, len(other))) :]
        else:
            rest = {"delete": rest[few:], "repeat": rest[:few] + rest}.get(kind, b"")
        content = content[:at] + rest
    return content


def rewritten(draw: st.DrawFn, tree: Any, times: int) -> Any:
    """The tree with entries replaced, removed or renamed. Texts that hold JSON are part of the tree."""
    for _ in range(times):
        place, keys = tree, sorted(tree)
        key: Any = draw(st.sampled_from(keys)) if keys else "more"
        while isinstance(inner := place.get(key), dict) and inner and draw(st.integers(0, 4)):
            place, keys = inner, sorted(inner)
            key = draw(st.sampled_from(keys))
        kind = draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename"]))
        if isinstance(inner, str) and inner.startswith("{"):
            place[key] = json.dumps(rewritten(draw, json.loads(inner), 1))
        elif kind == "replace" or key not in place:
            place[key] = draw(values)
        elif kind == "remove":
            del place[key]
        else:
            place[draw(st.sampled_from([*keys, "more", "../a\nb", "/"]))] = place.pop(key)
    return tree


@st.composite
def forged_json(draw: st.DrawFn, originals: tuple[bytes, ...]) -> bytes:
    """Valid JSON that says something else."""
    return json.dumps(
        rewritten(draw, json.loads(draw(st.sampled_from(originals))), draw(st.integers(1, 3)))
    ).encode()


@st.composite
def forged_tensors(draw: st.DrawFn, originals: tuple[bytes, ...]) -> bytes:
    """A header of valid JSON that says something else, and numbers that are extreme."""
    header, data = hostile.opened(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(0, 1))):
        at, number = 4 * draw(st.integers(0, len(data) // 4 - 1)), np.float32(draw(st.floats(width=32)))
        data = data[:at] + number.tobytes() + data[at + 4 :]
    return hostile.closed(rewritten(draw, header, draw(st.integers(0, 3))), data)


@st.composite
def forged_archive(draw: st.DrawFn) -> bytes:
    """A well-formed archive with wrong arrays, headers, names or numbers in its directory."""
    arrays: dict[str, np.ndarray] = dict(draw(st.sampled_from(hostile.DIALECTS)))
    if draw(st.booleans()):
        shape = draw(st.sampled_from([(6,), (6, 2), (6, 1), (6, 0), (0, 2), (), (5, 2), (6, 2, 1), (1, 6)]))
        odd = np.full(shape, draw(st.sampled_from([0, 1, -1, 0.5, np.nan, np.inf, -np.inf, 1e39, 1e-45, 300])))
        with np.errstate(all="ignore"):
            odd = odd.astype(draw(st.sampled_from(["f2", ">f4", "f8", "i1", "u8", "?", "c8", "U3"])))
        arrays[draw(st.sampled_from(sorted(arrays)))] = odd
    headers = {name: np.lib.format.header_data_from_array_1_0(array) for name, array in arrays.items()}
    bodies = [array.tobytes() for array in arrays.values()]
    members: dict[str, bytes] = {}
    for (name, header), body in zip(
        rewritten(draw, headers, draw(st.integers(0, 2))).items(), bodies, strict=False
    ):
        if isinstance(header, dict) and isinstance(header.get("shape"), list):
            header["shape"] = tuple(header["shape"])
        members[f"{name}.npy"] = hostile.raw_npy(f"{header!r}\n", body)
    content = hostile.pack(members, draw(st.sampled_from(hostile.METHODS)))
    fields = draw(st.lists(st.sampled_from(sorted(hostile.FIELDS)), max_size=2, unique=True)) if members else []
    limits = {"flags": 2**16, "method": 2**16}
    return hostile.forge(content, **{f: draw(st.sampled_from(NUMBERS)) % limits.get(f, 2**32) for f in fields})


# The table.


class Target(NamedTuple):
    """A kind of file: its name, valid examples, what loads it, mutations, and how many are tried at length."""

    file: str
    originals: tuple[bytes, ...]
    use: Use
    damaged: st.SearchStrategy[bytes]
    forged: st.SearchStrategy[bytes]
    many: int


ARCHIVES = tuple(
    hostile.pack({f"{key}.npy": hostile.npy(array) for key, array in arrays.items()}, method)
    for arrays in hostile.DIALECTS
    for method in hostile.METHODS
)
POLICIES = (hostile.small_policy(), hostile.small_policy(discrete=True))
STATES = (hostile.STATE,)
CONFIGS = (hostile.config_file("value-dice"), hostile.config_file("dac"))
TARGETS = {
    "demonstrations": Target("demos.npz", ARCHIVES, use_demos, damaged(ARCHIVES), forged_archive(), 1500),
    "policies": Target("policy", POLICIES, use_policy, damaged(POLICIES), forged_tensors(POLICIES), 1000),
    "checkpoints": Target("state", STATES, use_state, damaged(STATES), forged_tensors(STATES), 500),
    "configurations": Target("config.json", CONFIGS, use_config, damaged(CONFIGS), forged_json(CONFIGS), 300),
}
