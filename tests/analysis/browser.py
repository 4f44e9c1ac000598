"""A real browser without a window, driven through Chromium's DevTools protocol on two pipes."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser():
    """Where Chromium is, installed from the system's packages if need be; or None and why not."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and shutil.which("apt-get") and os.geteuid() == 0:
        install = "apt-get install -y -q --no-install-recommends chromium"
        try:
            subprocess.run(f"apt-get update -q; {install}", shell=True, capture_output=True, timeout=300)
        except subprocess.TimeoutExpired:
            return None, "no Chromium here, and installing it took too long"
        found = next(filter(None, map(shutil.which, NAMES)), None)
    return found, f"none of {', '.join(NAMES)} is here, and it cannot be installed"


def _high(descriptor):
    """The same file under a number that is not 3 or 4."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return copy


class Browser:
    """One page in a browser of its own; all errors that it logs are kept."""

    def __init__(self, path, folder):
        self.folder = folder
        to_browser, self._out = map(_high, os.pipe())
        self._in, from_browser = map(_high, os.pipe())
        flags = "--headless --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe"
        flags += f" '--user-data-dir={folder}/profile' about:blank"
        # the browser reads commands from descriptor 3 and writes to 4
        moves = f"exec 3<&{to_browser} 4>&{from_browser}; exec '{path}' {flags}"
        self._process = subprocess.Popen(
            ["bash", "-c", moves], pass_fds=(to_browser, from_browser), stderr=subprocess.DEVNULL
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number, self._session, self.errors = b"", 0, None, []
        target = self._wait_for(lambda: self.send("Target.getTargets")["targetInfos"])
        self._attach(next(one for one in target if one["type"] == "page")["targetId"])
        self.send(
            "Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder), eventsEnabled=True
        )

    def _attach(self, target):
        self._session = None
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def open_tab(self, address):
        """Another page beside this one, which calls go to from now on; returns this one, for `switch`."""
        before = self._session
        self._attach(self.send("Target.createTarget", url="about:blank")["targetId"])
        self.open(address)
        return before

    def switch(self, page):
        """Go to another open page; returns the one left."""
        before, self._session = self._session, page
        return before

    def close_tab(self, back):
        """Close this page and go to another one."""
        self.send("Page.close")
        self._session = back

    def close(self):
        os.close(self._out)  # the browser ends when nobody speaks to it any more
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)

    def send(self, method, **params):
        """Call a method and return its result; events on the way are looked at."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _receive(self, seconds=60):
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], seconds)[0]:
                raise TimeoutError("the browser does not answer")
            part = os.read(self._in, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))

    def _wait_for(self, found, seconds=60):
        end = time.monotonic() + seconds
        while not (value := found()):
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.05)
        return value

    def open(self, address):
        self.send("Page.navigate", url=address)

    def run(self, script):
        """The value of an expression on the page; promises are awaited."""
        done = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def until(self, script, seconds=60):
        """Wait until an expression on the page is true."""
        return self._wait_for(lambda: self.run(f"Boolean({script})"), seconds) and self.run(script)

    def key(self, key, text=None, code=None):
        """Press and release a key."""
        params = {"key": key, "code": code or key} | ({"text": text} if text else {})
        numbers = {"ArrowLeft": 37, "ArrowRight": 39, "Home": 36, "End": 35, "Enter": 13, "Escape": 27}
        params["windowsVirtualKeyCode"] = numbers.get(key, ord(key[0].upper()))
        self.send("Input.dispatchKeyEvent", type="keyDown", **params)
        self.send("Input.dispatchKeyEvent", type="keyUp", **params)

    def resize(self, width, height, dark=False):
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def picture(self, path, full=True):
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=full)["data"]
        path.write_bytes(base64.b64decode(data))
