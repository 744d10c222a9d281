"""The layers of the package, read from its imports: which room may import which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import valuedice

ROOT = Path(valuedice.__file__).parent
MODEL = {"types", "networks", "losses", "algorithms"}
DATA = {"types", "demos", "replay", "policy", "energy"}
BELOW: dict[str, set[str]] = {
    "__init__": set(),  # the public names: each is imported when it is first used
    "errors": set(),
    "system": set(),
    "types": set(),
    "networks": {"types"},
    "losses": {"types", "networks"},
    "algorithms": {"types", "networks", "losses"},
    "replay": {"types"},
    "demos": {"types", "replay"},
    "energy": {"types", "demos"},
    "policy": {"types"},
    "envs": DATA,
    "training": MODEL | DATA | {"envs"},
    "ring": {"algorithms"},
    "report": {"types"},
    "bench": {"types", "algorithms", "training"},
    "sweep": MODEL | DATA | {"envs", "training", "ring", "bench"},
    "commands": MODEL | DATA | {"envs", "training", "ring", "bench", "report", "sweep"},
    "cli": {"commands"},
}
"""The rooms (subpackages, and the modules beside them) from the lowest to the highest, and which others each may
import, besides `errors` and `system`."""

JAX, TASKS, SCREEN = {"jax", "jaxlib", "optax"}, {"gymnasium", "mujoco"}, {"matplotlib", "rich", "tyro"}
DISK = {"os", "io", "pathlib", "json", "csv", "shutil", "tempfile", "sys", "pickle", "safetensors"}
UNREACHED = {
    "types": JAX | TASKS | SCREEN | DISK,
    "algorithms": TASKS | SCREEN | DISK,
    "policy": JAX | TASKS | SCREEN,
    "demos": JAX | TASKS | SCREEN,
    "energy": JAX | TASKS | SCREEN,
    "envs": JAX | SCREEN,
    "report": JAX | TASKS | (SCREEN - {"matplotlib"}),
}
"""Libraries that importing a room must not import, neither directly nor through other rooms (see also test_api)."""
OPTIONAL = {"torch", "fsspec", "ray", "PIL", "imageio", "tensorboardX"}
"""Packages that only one function needs, which imports them."""


class Import(NamedTuple):
    """An import outside of type checking: `name` is the module and what is imported from it."""

    file: str
    name: str
    late: bool
    """Whether it stands in a function."""

    @property
    def room(self) -> str:
        return self.file.partition("/")[0].removesuffix(".py")

    @property
    def other_room(self) -> str | None:
        """The room that is imported, if it is one of ours and another one."""
        first, _, rest = self.name.partition(".")
        room = rest.partition(".")[0]
        return room if first == "valuedice" and room not in (self.room, "__version__") else None


def imports_of(file: str, node: ast.AST, late: bool = False) -> Iterator[Import]:
    """All imports in a piece of code, wherever they stand."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(file, alias.name, late) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert not child.level, "imports are absolute, so that this test can read them"
            yield from (Import(file, f"{child.module}.{alias.name}", late) for alias in child.names)
        elif not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from imports_of(file, child, late or isinstance(child, ast.FunctionDef))


FILES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(ROOT.rglob("*.py"))}
IMPORTS = [found for file, source in FILES.items() for found in imports_of(file, ast.parse(source))]


def test_every_room_imports_only_rooms_below_it():
    assert {Import(file, "", False).room for file in FILES} == set(BELOW)
    wrong = [i for i in IMPORTS if (other := i.other_room) and other not in BELOW[i.room] | {"errors", "system"}]
    assert wrong == []


def test_the_layers_have_no_cycle():
    rooms = list(BELOW)
    assert all(below <= set(rooms[: rooms.index(room)]) for room, below in BELOW.items())
    assert {i.other_room for i in IMPORTS if i.room in ("errors", "system")} <= {None, "errors"}


def reached(room: str) -> set[str]:
    """Libraries that are imported with a room."""
    early = [i for i in IMPORTS if i.room == room and not i.late]
    below = [reached(other) for other in {i.other_room for i in early} - {None} if other is not None]
    return {i.name.partition(".")[0] for i in early}.union(*below)


@pytest.mark.parametrize("room", UNREACHED)
def test_a_room_does_not_reach_the_libraries_of_other_layers(room):
    assert not reached(room) & UNREACHED[room]


def test_an_optional_package_is_imported_in_the_one_function_that_needs_it():
    # The comparison in PyTorch is a module of its own, which is imported late too.
    used = [i for i in IMPORTS if i.name.partition(".")[0] in OPTIONAL and "torch_value_dice" not in i.file]
    used += [i for i in IMPORTS if i.name.startswith("valuedice.bench.torch_value_dice")]
    assert all(i.late for i in used)
    assert {i.name.partition(".")[0] for i in used} == OPTIONAL | {"valuedice"}
    assert len({(i.file, i.name.partition(".")[0]) for i in used}) == len(OPTIONAL) + 1


def test_the_loop_is_imported_by_the_run_alone_and_the_bench_sees_only_the_learner():
    assert {i.file for i in IMPORTS if i.name.startswith("valuedice.training.loop")} == {"training/run.py"}
    trained = {i.name.rpartition(".")[0] for i in IMPORTS if i.room == "bench" and i.other_room == "training"}
    assert trained == {"valuedice.training.learner"}


def test_a_report_of_tables_alone_loads_no_matplotlib():
    drawing = [i for i in IMPORTS if i.room == "report" and i.name.startswith("matplotlib")]
    assert {i.file for i in drawing} == {"report/figures.py"}
    assert all(i.late for i in IMPORTS if i.name.startswith("valuedice.report.figures"))


def test_imports_are_seen_wherever_they_stand():
    source = """
import os.path
if TYPE_CHECKING:
    from valuedice.cli import main
def late():
    if True:
        from valuedice import policy, __version__
"""
    found = list(imports_of("envs/make.py", ast.parse(source)))
    assert [(i.name, i.late, i.other_room) for i in found] == [
        ("os.path", False, None),
        ("valuedice.policy", True, "policy"),
        ("valuedice.__version__", True, None),
    ]


def test_no_file_is_longer_than_350_lines():
    files = [*ROOT.rglob("*.py"), *Path(__file__).parent.rglob("*.py")]
    assert [path for path in files if len(path.read_text().splitlines()) > 350] == []
