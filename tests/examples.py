"""The Python examples of a page of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"


def blocks(page: str) -> list[str]:
    """The code of each example, in order."""
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def run(code: str, names: dict[str, Any], place: str = "example") -> None:
    """Runs an example; names that it defines are there for the next one."""
    exec(compile(code, place, "exec", dont_inherit=True), names)
