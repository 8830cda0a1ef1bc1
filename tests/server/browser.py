"""Headless Chromium, driven through its own WebDriver: as little of a client as the tests need.

No package is needed for it: chromedriver is asked over HTTP, as W3C's WebDriver says.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
_CHROMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_KEYS = {"ArrowRight": "\ue014", "Escape": "\ue00c", "Tab": "\ue004", "End": "\ue010"}


def missing() -> str | None:
    """What there is not that a browser needs; None: all is there."""
    if shutil.which("chromedriver") is None:
        return "there is no chromedriver on this machine"
    if not any(map(shutil.which, _CHROMES)):
        return "there is no Chromium on this machine"
    return None


class Browser:
    """A window."""

    def __init__(self, http: httpx.Client, session: str) -> None:
        self._http = http
        self._path = f"/session/{session}"

    def _do(self, path: str, body: Any = None) -> Any:
        answer = self._http.post(self._path + path, json=body or {})
        value = answer.json()["value"]
        assert answer.status_code == 200, value["message"]
        return value

    def _cdp(self, cmd: str, **params: Any) -> Any:
        return self._do("/goog/cdp/execute", {"cmd": cmd, "params": params})

    def open(self, url: str) -> None:
        """Go to a page."""
        self._do("/url", {"url": url})

    def size(self, width: int, height: int) -> None:
        """Make the window another one: narrower than desktop windows can be, too."""
        self._cdp(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, scheme: str) -> None:
        """Have the system be ``light`` or ``dark``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._cdp("Emulation.setEmulatedMedia", features=features)

    def js(self, code: str, *args: Any) -> Any:
        """Run a function's body."""
        return self._do("/execute/sync", {"script": code, "args": list(args)})

    def text(self, selector: str) -> str:
        """The text of an element."""
        found = self.js("return document.querySelector(arguments[0])?.textContent ?? ''", selector)
        assert isinstance(found, str)
        return found

    def wait(self, code: str, seconds: float = 60) -> Any:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not (found := self.js(f"return {code}")):
            assert time.monotonic() < end, f"not within {seconds} s: {code}"
            time.sleep(0.05)
        return found

    def _element(self, selector: str) -> dict[str, str]:
        found = self._do("/element", {"using": "css selector", "value": selector})
        return {_ELEMENT: found[_ELEMENT]}

    def click(self, selector: str) -> None:
        """Click an element."""
        self._do(f"/element/{self._element(selector)[_ELEMENT]}/click")

    def type(self, selector: str, text: str) -> None:
        """Put a text in place of what is in a field, at once: the page checks what is typed."""
        select = "const at = document.querySelector(arguments[0]); at.focus(); at.select();"
        self.js(select, selector)
        self._cdp("Input.insertText", text=text)

    def press(self, *keys: str) -> None:
        """Press keys, wherever the focus is."""
        actions = []
        for key in keys:
            value = _KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._do("/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def hover(self, selector: str) -> None:
        """Move the pointer over an element."""
        self.js("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
        move = {
            "type": "pointerMove",
            "duration": 0,
            "x": 0,
            "y": 0,
            "origin": self._element(selector),
        }
        pointer = {
            "type": "pointer",
            "id": "mouse",
            "parameters": {"pointerType": "mouse"},
            "actions": [move],
        }
        self._do("/actions", {"actions": [pointer]})

    def errors(self) -> list[str]:
        """What the page has done wrong, since this was last asked."""
        answer = self._http.post(f"{self._path}/se/log", json={"type": "browser"})
        told = [one["message"] for one in answer.json()["value"] if one["level"] == "SEVERE"]
        return [one for one in told if "Failed to load resource" not in one]

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write what is seen to a PNG file."""
        made = self._cdp("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(made["data"]))


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser, until the end of the block."""
    driver = shutil.which("chromedriver")
    chrome = next(filter(None, map(shutil.which, _CHROMES)))
    assert driver is not None
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen([driver, "--port=0"], stdout=out, stderr=subprocess.STDOUT)
        try:
            port = _port(process, out)
            arguments = [
                "--headless=new",
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={folder}",
            ]
            asked = {
                "browserName": "chrome",
                "goog:chromeOptions": {"binary": chrome, "args": arguments},
                "goog:loggingPrefs": {"browser": "ALL"},
            }
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120) as http:
                body = {"capabilities": {"alwaysMatch": asked}}
                value = http.post("/session", json=body).json()["value"]
                assert "sessionId" in value, value
                try:
                    yield Browser(http, value["sessionId"])
                finally:
                    http.delete(f"/session/{value['sessionId']}")
        finally:
            process.terminate()
            process.wait()


def _port(process: subprocess.Popen[bytes], out: Any) -> int:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, "chromedriver has ended"
        out.seek(0)
        _, found, rest = out.read().partition("was started successfully on port ")
        if found and "." in rest:
            return int(rest.split(".")[0])
        time.sleep(0.05)
    raise AssertionError("chromedriver does not say its port")
