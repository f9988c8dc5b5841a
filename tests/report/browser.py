"""A browser that shows nothing, driven over pipes: Chrome's DevTools protocol needs no other library that way."""

import json
import os
import shutil
import subprocess
import tempfile
import time

BROWSER = next((path for name in ["chromium", "chromium-browser", "google-chrome"] if (path := shutil.which(name))), None)


class Page:
    """One page of a browser of its own, which ends with it."""

    def __init__(self, url, size, patience=240):
        self.until, self.calls, self.session, self.rest = time.monotonic() + patience, 0, None, b""
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_browser, self.to = os.pipe()
        self.of, of_browser = os.pipe()

        def as_the_protocol_has_them():  # in the child: commands come from 3, answers go to 4
            first, second = os.dup(to_browser), os.dup(of_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.browser = subprocess.Popen(
            [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={self.profile.name}", f"--window-size={size[0]},{size[1]}", "about:blank"],
            preexec_fn=as_the_protocol_has_them, pass_fds=[3, 4, to_browser, of_browser],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(of_browser)
        os.set_blocking(self.of, False)
        target = self.call("Target.createTarget", url=url)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.to)  # which ends it
        try:
            self.browser.wait(20)
        except subprocess.TimeoutExpired:
            self.browser.kill()
            self.browser.wait()
        os.close(self.of)
        self.profile.cleanup()

    def call(self, method, **parameters):
        self.calls += 1
        message = {"id": self.calls, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        rest = memoryview(json.dumps(message).encode() + b"\0")
        while rest:
            rest = rest[os.write(self.to, rest):]
        while True:
            answer = self.receive()
            if answer.get("id") == self.calls:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def receive(self):
        while b"\0" not in self.rest:
            if time.monotonic() > self.until:
                raise TimeoutError(f"{BROWSER} does not answer")
            try:
                self.rest += os.read(self.of, 1 << 20)
            except BlockingIOError:
                time.sleep(0.01)
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def evaluate(self, script):
        """The value of `script`, which may be a promise's."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "an exception"))
        return answer["result"].get("value")
