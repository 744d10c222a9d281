"""The page: one file that asks for nothing, and what a reader sees and does in Chromium."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser, browsing
from run_folders import finished_run

from valuedice.report.collect import Collection
from valuedice.report.page import page
from valuedice.report.records import Row, Run
from valuedice.report.ring import Ring

HOSTILE = (
    "</script><script>document.title='broken'</script><img src=http://127.0.0.1/x onerror=alert(1)> {{DATA}} & <!--"
)


def cloning(task: str, score: float) -> Run:
    """A run that takes no steps."""
    rows = (Row(0, 500, 60.0, 100 * score, 1.0, 100.0, score),)
    return Run(f"{task}-bc", task, "bc", "BC", "bc", episodes=1, seed=0, rows=rows)


def runs() -> list[Run]:
    """Two tasks and three contestants; one run of the last has failed."""
    found = [
        finished_run(task, "value-dice", seed, 0.1, last, title="ValueDICE", settings={"nu_lr": 0.001})
        for task in ("Ant-v5", "Hopper-v5")
        for seed, last in enumerate((0.5, 0.7))
    ]
    found += [finished_run("Hopper-v5", "dac", 0, 0.2, 0.4, title=HOSTILE, episodes=10)]
    found += [cloning("Hopper-v5", 0.3)]
    return [*found, finished_run("Hopper-v5", "dac", 1, status="failed", error=HOSTILE, title=HOSTILE, episodes=10)]


def test_no_text_breaks_out_of_the_page():
    text = page(Collection(tuple(runs())), HOSTILE, HOSTILE, normalized=False)
    # The only tags of scripts are those of the page itself.
    assert len(re.findall(r"</?script", text)) == 4
    assert text.count("<!--") == 1
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])
    assert data["command"] == HOSTILE
    assert data["contestants"][1]["title"] == HOSTILE


def test_settings_that_json_cannot_hold_are_shown_as_text():
    run = finished_run("A", "c", 0, 0.5, settings={"clip": float("inf"), "hidden": [64], "keep": "last"})
    text = page(Collection((run,)), "T", "c", normalized=False)
    assert '"settings":{"clip":"Infinity","hidden":"[64]","keep":"last"}' in text


def test_no_file_of_the_page_holds_an_address():
    text = page(Collection(tuple(runs()[:2])), "T", "c", normalized=False)
    addresses = set(re.findall(r"https?://[^\s\"']+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a language, which nobody loads


def test_a_report_of_a_hundred_runs_is_small():
    many = [
        finished_run(
            f"T{task}", f"c{contestant}", seed, *(0.123456 * step for step in range(20)), settings={"a": 1}
        )
        for task in range(5)
        for contestant in range(4)
        for seed in range(5)
    ]
    assert len(page(Collection(tuple(many)), "T", "c", normalized=False)) < 500_000


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    """A page with all that there can be."""
    ring = Ring("ring", (("Two experts", b"\x89PNG\r\n"),), (("replay", "DAC"), ("either", "0.7")))
    text = page(Collection(tuple(runs()), (ring,), ("mind this",)), HOSTILE, "valuedice report x", normalized=False)
    path: Path = tmp_path_factory.mktemp("page") / "index.html"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def browser(index) -> Generator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with browsing(index.parent / "profile") as opened:
        yield opened


@pytest.fixture
def fresh(browser, index) -> Browser:
    """The page as it is at first."""
    browser.open(index)
    return browser


def chip(key: str, label: str) -> str:
    """A script that finds the box of a filter."""
    return f"""[...document.querySelectorAll('[data-filter={key}] label')].find(
        label => label.textContent === {json.dumps(label)}).querySelector('input')"""


CARDS = "[...document.querySelectorAll('.panel')].filter(card => !card.hidden)"
CURVES = f"{CARDS}.flatMap(card => [...card.querySelectorAll('figure:not([hidden]) path.mean')]).length"
LEVELS = f"{CARDS}.flatMap(card => [...card.querySelectorAll('figure:not([hidden]) .level')]).length"


def test_the_page_asks_for_nothing_and_complains_of_nothing(fresh):
    assert {url.rpartition("/")[2] for url in fresh.requests()} == {"index.html"}
    assert all(url.startswith("file:") for url in fresh.requests())
    assert (
        fresh.run("performance.getEntriesByType('resource').filter(e => !e.name.startsWith('data:')).length") == 0
    )
    assert fresh.complaints() == []
    assert fresh.run("document.title") == HOSTILE
    assert fresh.run("document.images.length") == 1


def test_every_contestant_is_drawn_in_its_panel(fresh):
    titles = fresh.run(f"{CARDS}.map(card => card.querySelector('header').textContent)")
    assert titles == ["Ant-v51 episode", "Hopper-v51 episode", "Hopper-v510 episodes"]
    assert fresh.run(CURVES) == 3
    assert fresh.run(LEVELS) == 1
    assert fresh.run("document.querySelectorAll('.panel')[0].querySelectorAll('.band').length") == 1


def test_filters_change_what_is_drawn(fresh):
    fresh.run(f"{chip('contestants', 'ValueDICE')}.click()")
    assert fresh.run(CURVES) == 1
    fresh.run(f"{chip('episodes', '1')}.click()")
    assert fresh.run(f"{CARDS}.length") == 1
    fresh.run(f"{chip('tasks', 'Hopper-v5')}.click()")
    assert fresh.run(f"{CARDS}.length") == 0
    assert fresh.run("document.getElementById('nothing').hidden") is False
    fresh.run(f"{chip('tasks', 'Hopper-v5')}.click()")
    fresh.run(f"{chip('episodes', '1')}.click()")
    fresh.run(f"{chip('contestants', 'ValueDICE')}.click()")
    assert fresh.run(CURVES) == 3


def test_single_seeds_and_normalised_returns_are_shown_on_demand(fresh):
    seeds = "document.querySelectorAll('.panel')[0].querySelectorAll('figure:not([hidden]) .seed').length"
    assert fresh.run(seeds) == 0
    fresh.run(f"{chip('view', 'single seeds')}.click()")
    assert fresh.run(seeds) == 2
    caption = "document.querySelector('figure:not([hidden]) figcaption').textContent"
    assert fresh.run(caption) == "return"
    fresh.run(f"{chip('view', 'normalised')}.click()")
    assert fresh.run(caption) == "normalised return"


TOOLTIP = (
    "[...document.querySelectorAll('#tooltip:not([hidden]) tr')].map(r => [...r.cells].map(c => c.textContent))"
)


def test_hovering_shows_the_mean_of_each_contestant_at_that_step(fresh):
    chart = "document.querySelectorAll('.panel')[1].querySelector('svg.chart')"
    fresh.run(f"{chart}.scrollIntoView({{block: 'center'}})")
    box = fresh.run(f"{chart}.getBoundingClientRect().toJSON()")
    fresh.move_to(box["x"] + box["width"] - 14, box["y"] + 60)
    # The runs are at 50 and 70 of 100: their mean is 60, their deviation 10√2. Cloning stays at its level.
    assert fresh.run(TOOLTIP) == [
        ["", "ValueDICE", "60 ± 14.1", "n=2"],
        ["", "BC", "30", "n=1"],
        ["", "expert", "100"],
    ]
    fresh.move_to(box["x"] + 60, box["y"] + 60)
    assert fresh.run(TOOLTIP)[1] == ["", "ValueDICE", "10 ± 0", "n=2"]
    fresh.move_to(1, 1)
    assert fresh.run(TOOLTIP) == []


def test_arrow_keys_show_the_same(fresh):
    fresh.run("document.querySelector('svg.chart').focus()")
    fresh.press("End")
    assert fresh.run(TOOLTIP)[0] == ["", "ValueDICE", "60 ± 14.1", "n=2"]
    fresh.press("ArrowLeft")
    assert fresh.run(TOOLTIP)[0] == ["", "ValueDICE", "10 ± 0", "n=2"]
    fresh.press("Escape")
    assert fresh.run(TOOLTIP) == []


def test_a_run_expands_to_its_settings(fresh):
    assert fresh.run("document.querySelectorAll('dl.settings').length") == 0
    fresh.run("document.querySelector('button.expand').click()")
    assert fresh.run("document.querySelector('button.expand').getAttribute('aria-expanded')") == "true"
    assert fresh.run("document.querySelector('dl.settings').textContent") == "nu_lr0.001"


def test_runs_are_sorted_by_a_column_and_back(fresh):
    names = "[...document.querySelectorAll('tr.run')].map(row => row.cells[0].textContent)"
    button = "[...document.querySelectorAll('#runs th button')].find(b => b.textContent === 'return')"
    fresh.run(f"{button}.click()")
    assert fresh.run(names)[:2] == ["Hopper-v5-bc", "Hopper-v5-dac-0"]
    # What has no return stays last either way.
    assert fresh.run(names)[-1] == "Hopper-v5-dac-1"
    fresh.run(f"{button}.click()")
    assert fresh.run(names)[0].endswith("value-dice-1")
    assert fresh.run(names)[-1] == "Hopper-v5-dac-1"


def test_problems_numbers_and_pictures_are_shown_as_text(fresh):
    assert fresh.run("document.getElementById('problem-list').textContent") == f"failedHopper-v5-dac-1: {HOSTILE}"
    assert "mind this." in fresh.run("document.getElementById('summary').textContent")
    row = fresh.run("document.querySelector('#aggregates tbody tr').textContent")
    assert row == "ValueDICE0.60 [0.50, 0.70]0.60 [0.50, 0.70]24"
    assert fresh.run("document.querySelector('#improvements tbody td[title]').textContent") == "1.001.00–1.00"
    assert "0.7" in fresh.run("document.getElementById('rings').textContent")


@pytest.mark.parametrize("width", [360, 1400])
def test_the_page_fits_the_window(fresh, width):
    fresh.size(width, 800)
    assert fresh.run("document.documentElement.scrollWidth") == width
    fresh.size(1280, 900)


def test_the_page_is_dark_where_the_user_prefers_it(fresh):
    grounds: set[str] = set()
    for name in ("light", "dark"):
        fresh.theme(name)
        grounds.add(fresh.run("getComputedStyle(document.body).backgroundColor"))
    assert len(grounds) == 2
