"""The command line: which command, which exit code, and errors of one line."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from valuedice import __version__
from valuedice.commands import colourless, say, value_of
from valuedice.errors import DivergenceError, InputError, Interrupted
from valuedice.system.machine import limit_threads, threads

USAGE = """\
usage: valuedice COMMAND [OPTIONS]

Imitation learning from a few demonstrations, without rewards.

  train [ALGORITHM]           learn a policy from demonstrations, online or offline: by value-dice (the default),
                              bc, dac, dual-dice, gail
  expert                      learn a policy from rewards, to record demonstrations with
  evaluate RUN_OR_POLICY      returns of a policy in an environment
  play RUN_OR_POLICY ...      film a policy, or several side by side: .mp4 or .gif
  demos inspect [REF]         what a demonstration file holds, and what is wrong with it
  demos convert REF OUT       write it in this library's own format
  demos collect               record demonstrations with a policy
  ring                        the paper's Ring MDP study, exactly: figure and numbers
  bench                       milliseconds an update, beside the limit of the machine

  -h, --help                  this text; valuedice COMMAND --help for a command's options
  --version                   the version
"""

COMMANDS = {
    "train": "training:train_command",
    "expert": "expert:expert_command",
    "evaluate": "others:evaluate_command",
    "ring": "others:ring_command",
    "bench": "bench:bench_command",
    "play": "playing:play_command",
    "demos inspect": "demonstrations:inspect_command",
    "demos convert": "demonstrations:convert_command",
    "demos collect": "demonstrations:collect_command",
}
"""Where each command lives; it is imported when it is used, so that help is quick."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; the exit code says how it ended."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.showwarning = show_warning
            with ended_by_signals():
                code = dispatch(args)
                sys.stdout.flush()
                return code
    except InputError as error:
        return fail(str(error))
    except MemoryError as error:
        return fail(f"not enough memory ({error}); lower --batch-size or --replay-capacity, or use less data")
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing more may be written, at the end of the process either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except DivergenceError as error:
        print(f"valuedice: {error}", file=sys.stderr)  # noqa: T201
        return 3
    except KeyboardInterrupt as stop:
        print(f"valuedice: {str(stop) or 'interrupted'}", file=sys.stderr)  # noqa: T201
        return 128 + (stop.signum if isinstance(stop, Interrupted) else signal.SIGINT)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Ctrl-C and SIGTERM end a command at once; training itself, once it is under way, saves first.

    Not by an exception, which is lost or becomes another one where it meets a module that is just being loaded.
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
    """Nothing is lost: files are written whole."""
    os.write(2, b"valuedice: interrupted\n")
    os._exit(128 + signum)


def fail(message: str) -> int:
    """One line, exit code 2."""
    print(f"valuedice: error: {' '.join(message.split())}", file=sys.stderr)  # noqa: T201
    return 2


def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """One line, without the place in the code."""
    print(f"valuedice: warning: {' '.join(colourless(str(message)).split())}", file=sys.stderr)  # noqa: T201


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
        return fail(f"no command {name!r}; there are: {', '.join(COMMANDS)}")
    if name in ("train", "expert"):
        # Here, since the command's modules load numpy.
        limit_threads(threads_asked(args))
    module, function = COMMANDS[name].split(":")
    return getattr(import_module(f"valuedice.commands.{module}"), function)(args[len(name.split()) :])


def threads_asked(args: list[str]) -> int:
    """The value of `--threads`, or what a resumed run had; what is no number is left to the command to refuse."""
    value = value_of("--threads", args)
    folder = value_of("--resume", args)
    if value is None and folder is not None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            value = str(json.loads((Path(folder) / "config.json").read_text()).get("threads"))
    return int(value) if value and value.isdigit() and int(value) else threads()


if __name__ == "__main__":
    sys.exit(main())
