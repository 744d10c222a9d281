"""The layers of the package, read off its imports: who may know whom."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import valuedice

ROOT = Path(valuedice.__file__).parent
DATA = {"errors", "types", "replay", "demos"}
TASK = {"errors", "types", "envs", "policy", "evaluate"}

ALLOWED: dict[str, set[str]] = {
    "": set(),  # the public API: everything is imported when it is first used
    "errors": set(),
    "types": set(),
    "machine": {"errors"},
    "files": set(),
    "interrupts": {"errors"},
    "guard": {"errors", "types"},
    "checkpoint": {"errors", "files", "replay"},
    "networks": {"types"},
    "losses": {"networks", "types"},
    "algorithms": {"errors", "losses", "networks", "types"},
    "replay": {"types"},
    "demos": {"errors", "types", "replay"},
    "policy": {"errors", "files", "types"},
    "envs": {"errors", "types"},
    "scripted": set(),
    "progress": {"types"},
    "runs": {"checkpoint", "errors", "files", "machine", "policy", "types"},
    "evaluate": {"errors", "types", "envs", "policy"},
    "collect": DATA | TASK,
    "play": TASK,
    "explore": {"types", "policy", "replay"},
    "rollouts": {"types", "policy", "explore"},
    "learner": DATA | {"algorithms", "policy", "rollouts"},
    "task": DATA | TASK | {"algorithms"},
    "training": {"explore", "learner", "machine", "rollouts", "types"},
    "keeper": {"errors", "guard", "policy", "runs", "training", "types"},
    "train": DATA
    | TASK
    | {"algorithms", "explore", "interrupts", "keeper", "learner", "machine", "progress", "runs"}
    | {"rollouts", "task", "training"},
    "bench": {"errors", "types", "algorithms", "learner", "machine", "networks"},
    "ring_figure": set(),
    "ring": {"errors", "types", "algorithms", "ring_figure"},
    "ring_dac": {"ring"},
    "ring_comparison_figure": {"ring_figure"},
    "ring_comparison": {"errors", "ring", "ring_comparison_figure", "ring_dac"},
    "commands": DATA
    | TASK
    | {"algorithms", "bench", "collect", "machine", "play", "ring", "ring_comparison", "runs", "train"},
    "cli": {"", "commands", "errors", "machine"},
}
"""Of each module or subpackage, which others of ours it may import, also inside functions."""

JAX = {"jax", "jaxlib", "optax"}
SCREEN = {"rich", "tyro", "matplotlib", "tensorboardX"}
DISK = {"os", "io", "pathlib", "json", "csv", "shutil", "tempfile", "sys", "pickle", "safetensors"}
FORBIDDEN: dict[str, set[str]] = {
    "types": JAX | SCREEN | DISK | {"gymnasium", "mujoco"},
    "networks": SCREEN | DISK | {"gymnasium", "mujoco"},
    "losses": SCREEN | DISK | {"gymnasium", "mujoco"},
    "algorithms": SCREEN | DISK | {"gymnasium", "mujoco"},
    "replay": JAX | SCREEN | {"gymnasium", "mujoco"},
    "demos": JAX | SCREEN | {"gymnasium", "mujoco"},
    "policy": JAX | SCREEN | {"gymnasium", "mujoco"},
    "envs": JAX | SCREEN,
    "evaluate": JAX | SCREEN,
    "collect": JAX | SCREEN,
    "play": JAX | SCREEN,
    "explore": JAX | SCREEN | {"gymnasium", "mujoco"},
    "rollouts": JAX | SCREEN | {"gymnasium", "mujoco"},
    "cli": JAX | SCREEN | {"gymnasium", "mujoco"},
}
"""Of some, which libraries they may not reach, neither themselves nor through what they import of ours."""


def imports(source: str, package: str = "valuedice") -> set[str]:
    """All modules that the code imports anywhere, but for type checking."""
    tree = ast.parse(source)
    unseen: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            unseen |= {inner for part in node.body for inner in ast.walk(part)}
    found: set[str] = set()
    for node in ast.walk(tree):
        if node in unseen:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute, so that this test can read them"
            found.add(node.module or "")
            if node.module == package:  # `from valuedice import policy` names a module, `__version__` does not
                found |= {f"{package}.{a.name}" for a in node.names if unit_exists(a.name)}
                found -= {package} if all(unit_exists(a.name) for a in node.names) else set()
    return found


def unit_exists(name: str) -> bool:
    return (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()


def unit(path: Path) -> str:
    """The module or subpackage that a file belongs to."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "" if parts == ("__init__",) else parts[0]


def graph() -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Of each unit, which others of ours it imports, and which libraries."""
    ours: dict[str, set[str]] = {}
    theirs: dict[str, set[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = unit(path)
        for module in imports(path.read_text()):
            first, _, rest = module.partition(".")
            if first == "valuedice":
                ours.setdefault(name, set()).add(rest.partition(".")[0])
            else:
                theirs.setdefault(name, set()).add(first)
        ours.setdefault(name, set()).discard(name)
        theirs.setdefault(name, set())
    return ours, theirs


OURS, THEIRS = graph()


def test_every_module_has_its_place_in_the_layers():
    assert set(OURS) == set(ALLOWED)


@pytest.mark.parametrize("name", ALLOWED)
def test_a_module_imports_only_what_lies_below_it(name):
    assert OURS.get(name, set()) <= ALLOWED[name]


def test_the_layers_have_no_cycle():
    placed: set[str] = set()
    while left := set(ALLOWED) - placed:
        free = {name for name in left if ALLOWED[name] <= placed}
        assert free, f"a cycle among {left}"
        placed |= free


def reached(name: str, seen: set[str]) -> set[str]:
    """Libraries that importing a unit imports, directly or through ours."""
    seen.add(name)
    below = [reached(other, seen) for other in OURS[name] if other not in seen]
    return THEIRS[name].union(*below)


# The command line imports its commands by name, when they are used, which no parser of imports sees; `commands`
# itself, the package, is what it imports at once.
@pytest.mark.parametrize("name", sorted(set(FORBIDDEN) - {"cli"}))
def test_a_module_never_reaches_the_libraries_above_its_layer(name):
    assert not reached(name, set()) & FORBIDDEN[name]


def test_the_command_line_imports_nothing_slow_at_once():
    assert not THEIRS["cli"] & FORBIDDEN["cli"]
    package = ast.parse((ROOT / "commands" / "__init__.py").read_text())
    at_once = {alias.name for node in package.body if isinstance(node, ast.Import) for alias in node.names}
    at_once |= {node.module or "" for node in package.body if isinstance(node, ast.ImportFrom)}
    assert not {name.partition(".")[0] for name in at_once} & FORBIDDEN["cli"]


def test_only_commands_import_the_loop_and_nobody_the_command_line():
    assert {name for name, others in OURS.items() if "train" in others} == {"commands"}
    assert not {name for name, others in OURS.items() if "cli" in others}


def test_the_reader_of_imports_sees_them_wherever_they_stand():
    source = """
from typing import TYPE_CHECKING
import os.path
if TYPE_CHECKING:
    from valuedice.cli import main
def late():
    from valuedice.train import train
    from valuedice import policy, __version__
"""
    expected = {"typing", "os.path", "valuedice.train", "valuedice.policy", "valuedice"}
    assert imports(source) == expected
