"""The examples of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def blocks(page: str, language: str = "python") -> list[str]:
    """The code of each example on a page, in order."""
    text = (Path(__file__).parent.parent / "docs" / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run_example(code: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs an example with these names, and adds those that it defines."""
    exec(compile(code, "example", "exec", dont_inherit=True), names)
    return names
