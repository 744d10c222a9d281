"""Hand-made hostile files: each is refused, and odd but honest ones load; little memory, no code run."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fuzz_files import CANARY, DEMOS, POLICIES, Bomb, alike, demos_file, small_policy
from fuzz_property import Tally, use_demos, use_policy

from valuedice.demos import archive, load_demos
from valuedice.errors import InputError


@pytest.mark.parametrize("name", DEMOS)
def test_forged_demonstrations_are_refused_and_odd_ones_load(name: str, tmp_path: Path):
    content, loads = DEMOS[name]
    (tmp_path / "demos.npz").write_bytes(content)
    assert Tally().attempt(use_demos, tmp_path / "demos.npz") == loads


@pytest.mark.parametrize("name", POLICIES)
def test_forged_policies_are_refused_and_odd_ones_load(name: str, tmp_path: Path):
    content, loads = POLICIES[name]
    (tmp_path / "policy").write_bytes(content)
    assert Tally().attempt(use_policy, tmp_path / "policy") == loads


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pickled objects", "pickled objects"),
        ("size told by header and directory", "cannot hold"),
        ("packed size told as well", "cannot fit"),
        ("shape beyond the member", "header promises"),
        ("bzip2 bomb", "method 12"),
        ("a million episodes", "mark only the last step"),
        ("an action of 10**12", "discrete action 1000000000000"),
    ],
)
def test_what_is_wrong_with_forged_demonstrations_is_said(name: str, says: str, tmp_path: Path):
    (tmp_path / "demos.npz").write_bytes(DEMOS[name][0])
    with pytest.raises(InputError, match=says):
        load_demos(tmp_path / "demos.npz")


def test_the_canary_sings_when_a_pickle_is_read():
    pickle.loads(pickle.dumps(Bomb()))  # noqa: S301
    assert CANARY.exists()
    CANARY.unlink()


LIMITED = """
import resource, sys
from pathlib import Path
from valuedice.demos import load_demos
from valuedice.errors import InputError
from valuedice.policy import load_policy

folder = Path(sys.argv[1])
for warm in (True, False):
    for path in sorted(folder.iterdir()):
        if warm == path.name.startswith("warm"):
            try:
                (load_policy if path.suffix == ".safetensors" else load_demos)(path)
            except InputError as error:
                causes = (error.__cause__, error.__context__)
                assert not any(isinstance(cause, MemoryError) for cause in causes), (path, error)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 64_000_000, resource.getrlimit(resource.RLIMIT_AS)[1]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="tells the memory in use on Linux alone")
def test_forged_files_need_no_more_than_64_mb_of_a_limited_process(tmp_path: Path):
    (tmp_path / "warm.npz").write_bytes(demos_file())
    (tmp_path / "warm.safetensors").write_bytes(small_policy())
    for forgeries, end in ((DEMOS, "npz"), (POLICIES, "safetensors")):
        for index, (content, _) in enumerate(forgeries.values()):
            (tmp_path / f"{index}.{end}").write_bytes(content)
    subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path)], check=True, timeout=60)


def test_a_large_file_of_a_hundredfold_compression_loads(tmp_path: Path):
    states = np.tile(np.eye(10, dtype=np.float32), (50_000, 1))
    ends = np.arange(len(states)) % 1000 == 999
    arrays = {"observations": states, "actions": states[:, :2], "next_observations": states, "terminations": ends}
    np.savez_compressed(tmp_path / "ring.npz", **arrays, truncations=~ends & False)
    assert (tmp_path / "ring.npz").stat().st_size < 450_000
    assert load_demos(tmp_path / "ring.npz").rows == 500_000


def test_a_real_bomb_is_refused_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive, "SMALL", 1 << 20)
    (tmp_path / "bomb.npz").write_bytes(alike(1_000_000))
    with pytest.raises(InputError, match=r"inflate to .* without compression"):
        load_demos(tmp_path / "bomb.npz")
