"""Files that are damaged, forged or hostile load or are refused in one line: cheaply, and without running code."""

from __future__ import annotations

import pickle
import resource
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.fuzzing import TARGETS, Tally
from faults.harness import options, resumed
from faults.hostile import CANARY, DEMOS, PICKLE, POLICIES, alike, signed
from hypothesis import HealthCheck, Phase, given, settings

import valuedice as vd
from valuedice.demos import archive
from valuedice.training.checkpoint import SLOTS

KINDS = [(name, how) for name in TARGETS for how in ("damaged", "forged")]
HAND_MADE = {"demonstrations": DEMOS, "policies": POLICIES}


def fuzz(name: str, how: str, folder: Path, *, at_length: bool) -> Tally:
    """Tries mutated files of a kind, always the same ones."""
    target, tally = TARGETS[name], Tally()

    @settings(
        max_examples=target.many if at_length else target.many // 25,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(getattr(target, how))
    def every(content: bytes) -> None:
        tally.attempt(target.use, folder / target.file, content)

    every()
    return tally


@contextmanager
def limited(megabytes: int) -> Generator[None]:
    """Whoever asks for more memory, in whatever language, gets none. Only Linux tells what is in use."""
    before, about = resource.getrlimit(resource.RLIMIT_AS), Path("/proc/self/statm")
    if about.exists():
        used = int(about.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def hand_made(name: str, folder: Path) -> Tally:
    """Tries the files made by hand, each of which must be refused as expected or load."""
    target, tally, outcomes = TARGETS[name], Tally(), dict[str, str | None]()
    # What is imported when it is first needed takes memory too.
    Tally().attempt(target.use, folder / target.file, target.originals[0])
    with limited(64):
        for key, (content, _) in HAND_MADE[name].items():
            outcomes[key] = tally.attempt(target.use, folder / target.file, content)
    for key, said in outcomes.items():
        verdict = HAND_MADE[name][key][1]
        assert (said is None) == (verdict is True), (key, said)
        assert said is None or str(verdict) in said, (key, said)
    return tally


@pytest.mark.parametrize("name", HAND_MADE)
def test_hand_made_forgeries_are_refused_and_odd_files_load(name, tmp_path):
    assert hand_made(name, tmp_path).loaded


@pytest.mark.parametrize(("name", "how"), KINDS)
def test_a_mutated_file_loads_or_is_refused(name, how, tmp_path):
    assert fuzz(name, how, tmp_path, at_length=False).refused


@pytest.mark.faults
@pytest.mark.parametrize(("name", "how"), KINDS)
def test_hundreds_of_mutated_files_load_or_are_refused(name, how, report, tmp_path):
    tally = fuzz(name, how, tmp_path, at_length=True)
    report["fuzz"][f"{name}, {how}"] = tally.report()
    assert len(tally.distinct) > TARGETS[name].many / 2
    assert tally.loaded or how == "damaged"
    if how == "forged" and name in HAND_MADE:
        report["fuzz"][f"{name}, hand-made"] = hand_made(name, tmp_path).report()


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_mutated_loads_when_it_is_intact(name, tmp_path):
    for content in TARGETS[name].originals:
        assert Tally().attempt(TARGETS[name].use, tmp_path / TARGETS[name].file, content) is None


def test_the_canary_sings_when_a_pickle_is_read():
    pickle.loads(PICKLE)  # noqa: S301
    assert CANARY.exists()
    CANARY.unlink()


@pytest.mark.parametrize("name", ["demos.npz", "policy.safetensors", "state", "config.json"])
def test_a_pickle_in_place_of_any_file_is_one_line_and_runs_no_code(name, launcher, whole, tmp_path):
    run = Path(shutil.copytree(whole("value-dice", "quick"), tmp_path / "run"))
    commands: dict[str, list[list[str]]] = {
        "demos.npz": [
            ["demos", "inspect", str(run / "demos.npz")],
            [*options("value-dice", "quick", demos=run / "demos.npz"), "--out", str(tmp_path / "new")],
        ],
        "policy.safetensors": [["evaluate", str(run), "--env", "Pendulum-v1"]],
    }
    for path in [run / "checkpoint" / slot / name for slot in SLOTS] if name == "state" else [run / name]:
        path.write_bytes(signed(PICKLE) if name == "state" else PICKLE)
    for command in commands.get(name, [resumed(run)]):
        assert launcher.run(*command).refused
    assert not CANARY.exists()
    assert not (tmp_path / "new").exists()


def test_a_large_file_of_a_hundredfold_compression_loads(tmp_path):
    states = np.tile(np.eye(10, dtype=np.float32), (50_000, 1))
    ends = np.arange(len(states)) % 1000 == 999
    arrays: dict[str, Any] = {"observations": states, "actions": states[:, :2], "next_observations": states}
    np.savez_compressed(tmp_path / "ring.npz", **arrays, terminations=ends, truncations=~ends & False)
    assert (tmp_path / "ring.npz").stat().st_size < 450_000
    assert vd.load_demos(tmp_path / "ring.npz").rows == 500_000


def test_a_real_bomb_is_refused_with_a_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "SMALL", 1 << 20)
    (tmp_path / "bomb.npz").write_bytes(alike(1_000_000))
    with pytest.raises(vd.InputError, match=r"inflate to .* without compression"):
        vd.load_demos(tmp_path / "bomb.npz")
