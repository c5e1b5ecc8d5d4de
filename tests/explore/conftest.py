"""A real browser, driven through the DevTools protocol: Chromium and nothing else is needed."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
]

# Chromium reads commands from file descriptor 3 and writes answers to 4.
START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


class Browser:
    """Chromium with one page; what the page did wrong is in ``errors``, what it asked for in ``requests``."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        low, self._write = os.pipe()
        self._read, other = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (low, other)]
        start = [sys.executable, "-c", START, *map(str, ends), *command]
        self._process = subprocess.Popen(start, pass_fds=ends, stderr=subprocess.DEVNULL)
        for end in (low, other, *ends):
            os.close(end)
        self._rest, self._number, self._session = b"", 0, None
        self.errors: list[str] = []
        self.requests: list[str] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        target = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]  # type: ignore[no-any-return]

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            some = os.read(self._read, 1 << 20)
            if not some:
                raise ConnectionError("the browser has gone")
            self._rest += some
        text, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method: str | None, what: dict[str, Any]) -> None:
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(what["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
            self.errors.append(json.dumps(what["args"]))
        elif method == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
            self.errors.append(json.dumps(what["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])

    def evaluate(self, script: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        answer = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str, seconds: float = 60) -> Any:
        """Ask the page on every frame, until an expression is true; return its value."""
        script = f"""new Promise((resolve, reject) => {{
            const end = performance.now() + {1000 * seconds};
            const ask = () => {{
                const value = ({condition});
                if (value) resolve(value);
                else if (performance.now() > end) reject(new Error("waited in vain"));
                else setTimeout(ask, 20);
            }};
            ask();
        }})"""
        return self.evaluate(script)

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False, still: bool = False) -> None:
        """Load an address anew."""
        self.errors.clear()
        self.resize(width, height)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        self.send("Emulation.setEmulatedMedia", features=features)
        self.send("Page.navigate", url="about:blank")
        self.wait_for("location.href === 'about:blank' && document.readyState === 'complete'")
        self.requests.clear()
        self.send("Page.navigate", url=url)
        self.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window another size."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        """Press and release the mouse on an element, at a fraction of its width and height."""
        places = [self._place(selector, x, y)]
        self._mouse("mousePressed", places[0])
        self._mouse("mouseReleased", places[0])

    def drag(self, selector: str, *places: tuple[float, float]) -> None:
        """Draw with the mouse from one place of an element to others."""
        points = [self._place(selector, *place) for place in places]
        self._mouse("mousePressed", points[0])
        for point in points[1:]:
            self._mouse("mouseMoved", point)
        self._mouse("mouseReleased", points[-1])

    def _place(self, selector: str, x: float, y: float) -> tuple[float, float]:
        script = f"""(() => {{
            const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{ block: "center" }});
            const box = element.getBoundingClientRect();
            return [box.left + {x} * box.width, box.top + {y} * box.height];
        }})()"""
        left, top = self.evaluate(script)
        return left, top

    def _mouse(self, kind: str, place: tuple[float, float]) -> None:
        x, y = place
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        for key in keys:
            code = {" ": "Space"}.get(key, key)
            text = {"text": key} if len(key) == 1 else {}
            virtual = {
                "Tab": 9,
                "Enter": 13,
                " ": 32,
                "ArrowLeft": 37,
                "ArrowUp": 38,
                "ArrowRight": 39,
                "ArrowDown": 40,
            }
            number = virtual.get(key, ord(key[0]))
            for kind in ("keyDown", "keyUp"):
                self.send("Input.dispatchKeyEvent", type=kind, key=key, code=code, windowsVirtualKeyCode=number, **text)
                text = {}

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Save a picture of the page."""
        picture = self.send("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip() if whole else {})
        path.write_bytes(base64.b64decode(picture["data"]))

    def _clip(self) -> dict[str, Any]:
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        os.close(self._write)
        os.close(self._read)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here: apt-get install chromium")
    try:
        browser = Browser(tmp_path_factory.mktemp("profile"))
    except OSError as error:
        pytest.skip(f"{CHROMIUM} does not start here: {error}")
    yield browser
    browser.close()
