"""The command line: dispatch, exit codes, and messages of one line that name flags."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from signal import SIGTERM

import pytest

from valuedice import __version__
from valuedice.cli import COMMANDS, HIDDEN
from valuedice.commands import translated, unboxed, value_of
from valuedice.errors import DivergenceError, InputError, Interrupted

pytestmark = pytest.mark.usefixtures("own_folder")


@pytest.mark.parametrize("args", [(), ("--help",), ("-h",), ("demos",), ("demos", "--help")], ids=" ".join)
def test_help_lists_the_commands(run, args):
    result = run(*args)
    assert result.code == 0
    assert all(f"\n  {command}" in result.out for command in COMMANDS.keys() - HIDDEN)


@pytest.mark.parametrize("command", [*sorted(COMMANDS.keys() - HIDDEN), "train bc"])
def test_every_command_has_help_of_its_own(run, command):
    result = run(*command.split(), "--help")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"usage: valuedice {command}")
    assert command not in ("train", "expert") or "None" not in result.out


def test_the_version_is_printed(run):
    result = run("--version")
    assert (result.code, result.out) == (0, f"valuedice {__version__}\n")


def test_unknown_commands_and_options_are_refused_by_name(refused):
    assert "no command 'trian'; there are: train, expert" in refused("trian")
    assert "no command '--stepps'" in refused("--stepps")
    assert "no command 'demos burn'" in refused("demos", "burn")
    assert "no algorithm 'value-mice'; there are: value-dice" in refused("train", "value-mice")
    for command in ("train", "expert", "ring", "demos inspect"):
        assert "Unrecognized options: --stepps" in refused(*command.split(), "--stepps")
    assert "missing: REF, OUT; see valuedice demos convert --help" in refused("demos", "convert")


@pytest.mark.parametrize("look", [{"FORCE_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}], ids=["colour", "ascii"])
def test_the_reason_survives_a_terminal_with_colours_or_without_lines(look):
    command = [sys.executable, "-m", "valuedice.cli", "demos", "inspect", "x", "--stepps"]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | look, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("valuedice: error: Unrecognized options: --stepps")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("box", "sentence"),
    [
        (
            "╭─ Parsing error ─╮\n│ Error parsing --seed: bad. │\n│ ──── │\n│ For help │\n╰─╯",
            "Error parsing --seed: bad",
        ),
        ("Parsing error\n------\nMissing x\n------\nFor help", "Missing x"),
        ("Parsing error\nError parsing algorithm.sac: `critic_lr` is 0", "`critic_lr` is 0"),
        (
            "Parsing error\nError parsing --steps: no type matching {None}|INT could be instantiated from\n"
            "['many'].\nGot errors: - <class 'NoneType'>: ['many'] does not match",
            "Error parsing --steps: 'many' is not INT",
        ),
    ],
)
def test_a_box_becomes_a_sentence(box, sentence):
    assert unboxed(box) == sentence


@pytest.mark.parametrize(
    ("args", "value"),
    [
        (["--resume", "run"], "run"),
        (["--offline", "--resume=run"], "run"),
        (["--resume"], ""),
        (["resume", "run"], None),
    ],
)
def test_an_option_is_found_before_the_others_are_read(args, value):
    assert value_of("--resume", args) == value


def test_an_option_is_found_with_underscores_too():
    assert value_of("--replay-data", ["--replay_data", "x.npz"]) == "x.npz"


@pytest.mark.parametrize(
    ("message", "command", "said"),
    [
        ("`eval_every` is 0; raise `steps`", "expert", "--eval-every is 0; raise --max-steps"),
        ("continue with: load_run('a/b c').resume()", "train", "continue with: valuedice train --resume 'a/b c'"),
        ('continue with: load_run("it").resume()', "expert", "continue with: valuedice expert --resume it"),
        ("from Python: load_run('x').resume(env=…)", "train", "from Python: load_run('x').resume(env=…)"),
        ("no environment `No-v0`, `no`", "train", "no environment 'No-v0', 'no'"),
    ],
)
def test_settings_become_flags_and_the_call_that_resumes_a_command(message, command, said, monkeypatch):
    monkeypatch.setattr("valuedice.commands.FLAGS", {"eval_every": "--eval-every", "steps": "--max-steps"})
    assert translated(message, command) == said


LINES = [
    (InputError("`out` is 0;\n  more"), 2, "error: --out is 0; more"),
    (DivergenceError("Training diverged: try `out`."), 3, "Training diverged: try --out."),
    (MemoryError("8 TB"), 2, "error: not enough memory (8 TB); lower "),
    (Interrupted(SIGTERM, "stopped; load_run('x').resume()"), 143, "stopped; valuedice ring --resume x"),
    (KeyboardInterrupt(), 130, "interrupted"),
]


@pytest.mark.parametrize(("error", "code", "line"), LINES, ids=[type(error).__name__ for error, *_ in LINES])
def test_every_end_has_its_exit_code_and_its_line(error, code, line, run, monkeypatch):
    def ends(_: Path) -> None:
        warnings.warn("mind `out`", stacklevel=1)
        raise error

    monkeypatch.setattr("valuedice.ring.mdp.run_ring", ends)
    result = run("ring")
    assert (result.code, result.out) == (code, "")
    assert result.err.startswith(f"valuedice: warning: mind --out\nvaluedice: {line}")
    assert result.err.count("\n") == 2


def test_a_reader_that_has_seen_enough_is_no_error():
    command = f"{sys.executable} -m valuedice.cli demos inspect pendulum | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
