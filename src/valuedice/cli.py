"""The command line: which command, which exit code, and errors of one line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Generator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from valuedice import __version__
from valuedice.commands import colourless, say, translated, value_of
from valuedice.errors import DivergenceError, InputError, Interrupted
from valuedice.system.machine import limit_threads, threads

USAGE = """\
usage: valuedice COMMAND [OPTIONS]

Imitation learning from a few demonstrations, without rewards.

  train [ALGORITHM]           learn a policy from demonstrations, online or offline: by value-dice (the default),
                              bc, dac, dual-dice, gail
  expert                      learn a policy from rewards, to record demonstrations with
  evaluate RUN_OR_POLICY      show the returns of a policy in an environment
  play RUN_OR_POLICY ...      film a policy, or several side by side: .mp4 or .gif
  demos inspect [REF]         show what a demonstration file holds, and what is wrong with it
  demos convert REF OUT       write demonstrations in this library's own format
  demos collect               record demonstrations with a policy
  demos distance A B          measure how far recording A is from B, without rewards
  sweep SUITE                 make a grid of runs, on the cores of this machine or on a Ray cluster
  report RUNS ...             tables, figures and a web page of finished runs
  ring                        solve the paper's Ring MDP exactly: figures and numbers
  bench                       measure milliseconds per update, next to the machine's limit

  -h, --help                  this text; valuedice COMMAND --help for a command's options
  --version                   the version
"""

COMMANDS = {
    "train": "train:train_command",
    "expert": "expert:expert_command",
    "evaluate": "evaluate:evaluate_command",
    "play": "play:play_command",
    "demos inspect": "demos:inspect_command",
    "demos convert": "demos:convert_command",
    "demos collect": "demos:collect_command",
    "demos distance": "demos:distance_command",
    "report": "report:report_command",
    "ring": "ring:ring_command",
    "bench": "bench:bench_command",
    "sweep": "sweep:sweep_command",
    "sweep-run": "sweep:run_command",
}
"""Module and function of each command; imported when it is used, so that help is quick."""
HIDDEN = {"sweep-run"}
"""Commands that only the library itself gives."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code says how it ended."""
    args = list(sys.argv[1:] if argv is None else argv)

    def complain(message: object, *_: Any, kind: str = "warning: ", **__: Any) -> None:
        """One line, without the place in the code."""
        command = args[0] if args else ""
        text = translated(colourless(str(message)), "train" if command in HIDDEN else command)
        print(f"valuedice: {kind}{' '.join(text.split())}", file=sys.stderr)  # noqa: T201

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = complain
            with ended_by_signals():
                code = dispatch(args)
                sys.stdout.flush()
                return code
    except InputError as error:
        complain(error, kind="error: ")
        return 2
    except MemoryError as error:
        advice = "lower `batch_size` or `replay_capacity`, or use less data"
        complain(f"not enough memory ({error}); {advice}", kind="error: ")
        return 2
    except BrokenPipeError:
        # The reader of the output has gone; nothing more may be written, not even at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except DivergenceError as error:
        complain(error, kind="")
        return 3
    except KeyboardInterrupt as stop:
        complain(str(stop) or "interrupted", kind="")
        return 128 + (stop.signum if isinstance(stop, Interrupted) else signal.SIGINT)


@contextlib.contextmanager
def ended_by_signals() -> Generator[None]:
    """Ctrl-C and SIGTERM end a command at once; a training loop, once it runs, saves first.

    Exits directly: an exception raised while a module is being imported can be swallowed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signum: signal.signal(signum, end) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def end(signum: int, _: Any) -> None:
    """Exits. Nothing is lost, because files are written whole."""
    os.write(2, b"valuedice: interrupted\n")
    os._exit(128 + signum)


def dispatch(args: list[str]) -> int:
    """Finds the command."""
    if not args or args[0] in ("-h", "--help"):
        say(USAGE)
        return 0
    if args[0] == "--version":
        say(f"valuedice {__version__}")
        return 0
    name = " ".join(args[:2]) if args[0] == "demos" else args[0]
    if name in ("demos", "demos -h", "demos --help"):
        say(USAGE)
        return 0
    if name not in COMMANDS:
        raise InputError(
            f"no command {name!r}; there are: {', '.join(name for name in COMMANDS if name not in HIDDEN)}"
        )
    if name in ("train", "expert"):
        # Here, because the command's modules load numpy.
        limit_threads(threads_asked(args))
    module, function = COMMANDS[name].split(":")
    return getattr(import_module(f"valuedice.commands.{module}"), function)(args[len(name.split()) :])


def threads_asked(args: list[str]) -> int:
    """The value of `--threads`, or what a resumed run had. The command refuses a value that is not a number."""
    value = value_of("--threads", args)
    folder = value_of("--resume", args)
    if value is None and folder is not None:
        with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
            value = str(json.loads((Path(folder) / "config.json").read_text()).get("threads"))
    # Longer numbers are refused later, with all other settings.
    return int(value) if value and value.isdecimal() and len(value) < 9 and int(value) else threads()


if __name__ == "__main__":
    sys.exit(main())
