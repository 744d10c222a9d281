"""Where a sweep keeps its runs: folders and URLs."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import pytest
from sweeping import RUNS, begin, finish, has_rows, same_runs, suite, wait_for

from valuedice.errors import InputError
from valuedice.sweep.store import PACKED, FolderStore, UrlStore, store_of


@pytest.fixture(params=["folder", "url"])
def store(request, tmp_path):
    return store_of(str(tmp_path / "out") if request.param == "folder" else f"file://{tmp_path}/out")


def test_a_store_keeps_small_files(store):
    assert store.read("run/summary.json") is None
    store.write("run/summary.json", "α")
    assert store.read("run/summary.json") == "α"
    store.write("run/summary.json", "β")
    assert store.read("run/summary.json") == "β"
    store.remove("run/summary.json")
    store.remove("run/summary.json")
    assert store.read("run/summary.json") is None


def test_a_run_goes_on_from_what_was_sent(store):
    with store.work("run") as place:
        place.folder.mkdir(exist_ok=True, parents=True)
        (place.folder / "checkpoint").mkdir()
        (place.folder / "checkpoint" / "state").write_bytes(b"state")
        (place.folder / "metrics.csv").write_text("step\n1\n")
        place.send(now=True)
    assert store.read("run/metrics.csv") == "step\n1\n"
    with store.work("run") as place:
        assert (place.folder / "checkpoint" / "state").read_bytes() == b"state"


def test_what_is_not_sent_is_not_there(tmp_path):
    store = UrlStore(f"file://{tmp_path}/out")
    with store.work("run") as place:
        (place.folder / "metrics.csv").write_text("step\n")
        place.send()  # it is not yet time
    assert store.read("run/metrics.csv") is None
    assert not place.folder.exists()


def test_an_address_of_no_known_kind_is_refused():
    with pytest.raises(InputError, match="cannot use nowhere://x"):
        store_of("nowhere://x")


def test_a_path_is_a_folder():
    assert isinstance(store_of("some/folder"), FolderStore)


@pytest.mark.slow
def test_a_stopped_sweep_at_a_url_goes_on_exactly(tmp_path, undisturbed):
    out = tmp_path / "out"
    args = ["sweep", suite(tmp_path), "--out", f"file://{out}", "--jobs", 1]
    process = begin(*args)
    wait_for(lambda: any(has_rows(run) for run in Path(tempfile.gettempdir()).glob(f"valuedice-*/{RUNS[0]}")))
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    # Stopped in the middle: the packed run holds what the second half needs.
    assert (out / RUNS[0] / PACKED).exists()
    assert not (out / RUNS[0] / "summary.json").exists()
    finish(begin(*args))
    assert same_runs(out, undisturbed)
