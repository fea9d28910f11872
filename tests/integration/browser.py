"""Drives Debian's Chromium by its WebDriver, the W3C's protocol: JSON over HTTP."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from store_servers import free_port

_START_SECONDS = 60
_ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
)
TAB, ENTER, SPACE, RIGHT = "\ue004", "\ue007", " ", "\ue014"


class Browser:
    """A browser with one window, ended with the block."""

    def __init__(self, folder: Path) -> None:
        for program in ("chromium", "chromedriver"):
            if shutil.which(program) is None:
                raise FileNotFoundError(f"{program}: run `make tools` as root")
        self._port = free_port()
        self._log = (folder / "chromedriver.log").open("wb")
        self._profile = folder / "profile"
        self._session = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            ["chromedriver", f"--port={self._port}"],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )
        options = {
            "args": [*_ARGUMENTS, f"--user-data-dir={self._profile}"],
            "binary": shutil.which("chromium"),
        }
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        try:
            self._wait()
            made = self._send(
                "POST", "/session", {"capabilities": {"alwaysMatch": wanted}}
            )
        except BaseException:
            self._end()
            raise
        self._session = f"/session/{made['sessionId']}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._send("DELETE", self._session)
        finally:
            self._end()

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                if self._send("GET", "/status")["ready"]:
                    return
            except urllib.error.URLError:
                pass
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(Path(self._log.name).read_text())
            time.sleep(0.1)

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from error

    def _command(self, name: str, body: Mapping[str, Any]) -> Any:
        return self._send("POST", f"{self._session}/{name}", body)

    def open(self, page: Path) -> None:
        """Opens a file and waits until it is loaded."""
        self.log("browser"), self.log("performance")  # what was there before
        self._command("url", {"url": page.resolve().as_uri()})

    def run(self, script: str) -> Any:
        """Returns what a piece of JavaScript returns."""
        return self._command("execute/sync", {"script": script, "args": []})

    def devtools(self, name: str, **parameters: Any) -> Any:
        """Sends a command of the DevTools protocol."""
        body = {"cmd": name, "params": parameters}
        return self._command("goog/cdp/execute", body)

    def log(self, kind: str) -> list[dict[str, Any]]:
        """Returns what was logged since the last call: of the browser, or the network."""
        entries: list[dict[str, Any]] = self._command("se/log", {"type": kind})
        return entries

    def press(self, key: str) -> None:
        """Presses and releases a key."""
        strokes = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        keyboard = {"type": "key", "id": "keyboard", "actions": strokes}
        self._command("actions", {"actions": [keyboard]})

    def resize(self, width: int, height: int = 900) -> None:
        """Gives the page a window of this many pixels.

        Not as a phone's browser does: that shows a page that is too wide at a smaller scale.
        """
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Makes the system's colours "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.devtools("Emulation.setEmulatedMedia", features=[feature])
