"""The examples of the documentation run, one after the other, and print what the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples import blocks, run


def test_the_examples_of_extending_run_in_their_order(own_folder, capsys):
    names: dict[str, Any] = {"__name__": "extending"}
    for number, code in enumerate(blocks("extending.md")):
        run(code, names, f"docs/extending.md, example {number}")
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "[100, 200, 300]"
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert 1 < len(rows) < 20
    assert rows == names["cloned"].metrics
