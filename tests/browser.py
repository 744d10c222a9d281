"""Headless Chromium, driven by its own protocol over a pipe: no driver and no package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# Without any of its own requests.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-extensions"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--no-default-browser-check", "--hide-scrollbars", "--remote-debugging-pipe"),
)


class Browser:
    """One page. Commands are numbered; events that come in between are kept."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = os.fdopen(source, "rb", buffering=0), os.fdopen(sink, "wb", buffering=0)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert select([self._source], [], [], 60)[0], "the browser does not answer"
            piece = self._source.read(1 << 16)
            assert piece, "the browser has gone"
            self._rest += piece
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._sink.write(json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, path: Path, width: int = 1280, height: int = 900) -> None:
        """Opens a file."""
        self.size(width, height)
        before = len(self.events)
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events[before:]):
            self.events.append(self._message())

    def size(self, width: int, height: int) -> None:
        """The window's size."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def theme(self, name: str) -> None:
        """What the user prefers: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def run(self, script: str) -> Any:
        """The value of an expression, after the page has drawn."""
        script = f"new Promise(r => requestAnimationFrame(() => setTimeout(() => r({script}))))"
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def move_to(self, x: float, y: float) -> None:
        """Moves the mouse."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key: str) -> None:
        """Presses a key that writes nothing."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def seen(self, method: str) -> list[dict[str, Any]]:
        """The events of a kind so far."""
        self.run("0")
        return [event["params"] for event in self.events if event.get("method") == method]

    def requests(self) -> list[str]:
        """Addresses that the page asked for. Data inside the page is none."""
        asked = [event["request"]["url"] for event in self.seen("Network.requestWillBeSent")]
        return [url for url in asked if not url.startswith("data:")]

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        logged = [e["entry"]["text"] for e in self.seen("Log.entryAdded")]
        thrown = [str(e["exceptionDetails"]) for e in self.seen("Runtime.exceptionThrown")]
        said = [str(e["args"]) for e in self.seen("Runtime.consoleAPICalled")]
        return logged + thrown + said

    def quit(self) -> None:
        """Ends the browser."""
        self._session = None
        with suppress(BrokenPipeError):
            self.call("Browser.close")
        self._source.close()
        self._sink.close()


@contextmanager
def browsing(profile: Path) -> Generator[Browser]:
    """A browser with an empty profile."""
    assert CHROMIUM is not None
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    # Chromium reads commands from descriptor 3 and answers on 4.
    script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    command = ["bash", "-c", script, "bash", CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with (profile.parent / "browser.log").open("wb") as log:
        process = subprocess.Popen(command, pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log)
    os.close(theirs_in)
    os.close(theirs_out)
    browser = Browser(ours_in, ours_out)
    try:
        yield browser
    finally:
        browser.quit()
        process.wait(timeout=30)
