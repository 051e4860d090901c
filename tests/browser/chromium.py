"""A real browser without a window: Chromium, spoken to over its DevTools protocol (no driver, no download of its own).

Debian's ``chromium-headless-shell`` is the smallest that there is; any Chromium that is there is taken.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
from PIL import Image

from tests import debian

COMMANDS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
HOW = f"to look at reports in a browser: {' '.join(debian.APT_INSTALL)} {COMMANDS[0]} (as root)"
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
    *("--remote-debugging-port=0", "--no-first-run", "--disable-background-networking", "--disable-extensions"),
)
KEYS = {"Tab": 9, "Enter": 13, " ": 32}
PATIENCE_S = 60


def why_not() -> str:
    """Have a browser, installing one if need be; else the reason why there is none, in a line."""
    return "" if command() else debian.why_not({COMMANDS[0]: COMMANDS[0]}, HOW)


def command() -> str | None:
    """The browser that is there."""
    return next((found for name in COMMANDS if (found := shutil.which(name))), None)


class Page:
    """One page, as wide and in the theme that is asked for.

    Attributes:
        complaints: errors and warnings of the console, exceptions, and whatever was asked of the network.
    """

    def __init__(self, runner: asyncio.Runner, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._runner, self._socket, self._count, self._session = runner, socket, 0, ""
        self.complaints: list[str] = []

    def open(self, path: Path, *, width: int = 1100, height: int = 900, dark: bool = False) -> None:
        """Load a file and wait until it, its images and its script are there."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Network", "Page"):
            self.send(f"{domain}.enable")
        self.resize(width, height)
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[theme])
        found = self.send("Page.navigate", url=path.absolute().as_uri())
        assert "errorText" not in found, f"{path}: {found['errorText']}"
        self.evaluate(
            "new Promise(r => document.readyState === 'complete' && location.protocol === 'file:' ? r() : "
            "addEventListener('load', () => r()))"
        )

    def resize(self, width: int, height: int = 900) -> None:
        """As on a screen of so many CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, of a promise once it is there."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def press(self, key: str) -> None:
        """Press and release a key, where the focus is."""
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        common = {"key": key, "windowsVirtualKeyCode": KEYS[key]}
        self.send("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, *, whole: bool = False) -> bytes:
        """PNG of what is in sight, or of the whole page."""
        return b64decode(self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"])

    # -- the protocol

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and wait for its result."""
        return self._runner.run(asyncio.wait_for(self._send(method, params), PATIENCE_S))

    async def _send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": self._count, "method": method, "params": params, **session})
        while True:
            message = json.loads((await self._socket.receive()).data)
            if message.get("id") == self._count:
                assert "error" not in message, (method, message["error"])
                result: dict[str, Any] = message["result"]
                return result
            self._note(message.get("method", ""), message.get("params", {}))

    def _note(self, event: str, params: dict[str, Any]) -> None:
        if event == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(f"console.{params['type']}: {params['args']}")
        elif event == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif event == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("data:", "file:")):
            self.complaints.append(f"asked for {params['request']['url']}")


@contextlib.contextmanager
def pages(folder: Path) -> Iterator[Page]:
    """A browser with a profile in ``folder``, gone afterwards."""
    started = subprocess.Popen(
        [str(command()), *FLAGS, f"--user-data-dir={folder}", "about:blank"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Debian's command is a shell script: what it starts would outlive it
    )
    try:
        address = _address(started)
        with asyncio.Runner() as runner:
            session = runner.run(_session())
            try:
                yield Page(runner, runner.run(session.ws_connect(address, max_msg_size=0)))
            finally:
                runner.run(session.close())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.communicate(timeout=PATIENCE_S)  # to the end, which comes once all that wrote there are gone


def _address(started: subprocess.Popen[str]) -> str:
    assert started.stderr is not None
    said = []
    for line in started.stderr:
        said.append(line)
        if found := re.search(r"ws://\S+", line):
            return found[0]
    raise RuntimeError(f"{command()} did not start: {''.join(said)}")


async def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


def main() -> None:
    """``python -m tests.browser.chromium <report.html> <picture.png> [width] [height] [dark] [#part]``: a picture."""
    report, picture, *more = sys.argv[1:]
    width, height = [int(word) for word in more if word.isdigit()] or (1100, 1500)
    with tempfile.TemporaryDirectory() as profile, pages(Path(profile)) as page:
        page.open(Path(report), width=width, height=height, dark="dark" in more)
        for part in (word for word in more if word.startswith("#")):  # unfolds it, and goes there
            page.evaluate(f"new Promise(r => {{ onhashchange = () => setTimeout(r, 300); location.hash = '{part}' }})")
        with Image.open(io.BytesIO(page.screenshot())) as image:
            image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    main()
