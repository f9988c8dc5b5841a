#!/usr/bin/env python3
"""Opens pages of lockstep-report in a browser that shows nothing, and judges what they drew: no error, data in each
figure, and tables and tooltips for all of it. in_browser.py LOCKSTEP_REPORT [--pictures FOLDER]: pictures of the pages,
light and dark. --excerpt FILE: a small picture of what stands out in one, and of where its time went. Exits 77 where
there is no chromium."""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from browser import BROWSER

HERE = pathlib.Path(__file__).resolve().parent

# Does what a reader may do. It runs in the page, and leaves what it has found in the page.
READER = """<script>{
for (const details of document.querySelectorAll("details")) details.open = true;
const select = document.querySelector("nav select");
for (const chosen of select ? ["samples", "seconds", "step"] : []) {
  select.value = chosen;
  select.dispatchEvent(new Event("change"));
}
for (const box of document.querySelectorAll("nav input")) { box.click(); box.click(); }
let told = 0;
for (const { chart } of drawn)
  chart.data.datasets.forEach((set, datasetIndex) => {
    const index = set.data.findIndex(value => value !== null);
    if (set.band || index < 0) return;
    chart.tooltip.setActiveElements([{ datasetIndex, index }], { x: 1, y: 1 });
    chart.update();
    if (chart.tooltip.body.some(part => part.lines.length > 0 && !/undefined|NaN/.test(part.lines[0]))) ++told;
    else throw new Error(`no tooltip in ${chart.canvas.ariaLabel}`);
  });
setTimeout(() => { document.body.dataset.told = told; }, 100);
}</script></body>"""

# Leaves what stands out, and the figures that say why.
EXCERPT = """<script>
for (const unneeded of document.querySelectorAll("nav, header p, details")) unneeded.remove();
for (const heading of document.querySelectorAll("h2"))
  if (!["What stands out", "Where the time went"].includes(heading.textContent)) {
    heading.nextElementSibling.remove();
    heading.remove();
  }
</script></body>"""

# A row of the table of what differs between runs.
DIFFERENCE = "differ</h3><table>(?:(?!</table>).)*<td>{}</td>"
# The best evaluation: in the key of the figure, in its table, and in the table of runs.
BEST = ["◆ best evaluation", r"\(best\)</td>", r"best evaluation</th>(?:(?!</table>).)*\d at step \d"]
# Runs, how many figures they have at least, and what the page must and must not say, as regular expressions.
PAGES = {"one": (["slow-loader"], 11, BEST, []),
         "three": (["baseline", "slow-loader", "slow-host"], 19, [DIFFERENCE.format("learning-rate")],
                   [DIFFERENCE.format("run-dir")]),
         "many": (["many-ranks", "<img src=x onerror=stop()>\"'&"], 14, [], []),
         "lost": (["no-loss"], 6, [r'<td>2</td><td class="number">–</td>'], [r'<td>2</td><td class="number">0</td>']),
         "empty": (["empty"], 1, [], ["best evaluation", "∞", "NaN", "undefined", r'<td class="number">0</td><td class="number">0</td><td class="number">0</td>'])}


def browse(page, *options, size="1300,4500"):
    command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}",
               "--virtual-time-budget=10000", *options, page.as_uri()]
    # On a busy machine, a browser may hang before it opens the page.
    for patience in [40, 80, 120]:
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=patience, check=True).stdout
        except subprocess.TimeoutExpired:
            pass
    sys.exit(f"{BROWSER} has shown nothing of {page.name} three times")


def complaints(dom, figures, said, unsaid, charts=True):
    errors = re.search(r'<pre id="errors"[^>]*>(.*?)</pre>', dom, re.DOTALL)
    if not errors or errors[1]:
        yield f"errors in the page: {errors and errors[1]}"
    if 'data-ready="yes"' not in dom or not (told := re.search(r'data-told="(\d+)"', dom)) or int(told[1]) < figures * charts:
        yield "the page did not come to its end"
    points = [int(count) for count in re.findall(r'<figure[^>]* data-points="(\d+)"', dom)]
    if len(points) < figures or 0 in points:
        yield f"figures with {points} points, expected at least {figures} figures with data"
    if (tables := dom.count("<tbody>")) < figures or "<tbody></tbody>" in dom:
        yield f"{tables} tables, some of them empty"
    shown = re.sub(r"<script.*?</script>", "", dom, flags=re.DOTALL)
    for text in said:
        if not re.search(text, shown):
            yield f"the page does not say {text}"
    for text in unsaid:
        if re.search(text, shown):
            yield f"the page says {text}"
    if "<img" in dom:
        yield "a text of a run became HTML"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report")
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--excerpt", type=pathlib.Path)
    arguments = parser.parse_args()
    if not BROWSER:
        print("skipped: chromium is not there")
        return 77
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.executable, HERE / "make_runs.py", folder], check=True)
        for name, (runs, figures, said, unsaid) in PAGES.items():
            page = folder / f"{name}.html"
            subprocess.run([arguments.report, *(folder / run for run in runs), "-o", page], check=True)
            if arguments.excerpt:
                page.write_text(EXCERPT.join(page.read_text(encoding="utf-8").rsplit("</body>", 1)), encoding="utf-8")
                browse(page, f"--screenshot={arguments.excerpt.resolve()}", size="1300,730")
                return 0
            if arguments.pictures:
                arguments.pictures.mkdir(parents=True, exist_ok=True)
                for scheme, options in {"light": [], "dark": ["--blink-settings=preferredColorScheme=0"]}.items():
                    browse(page, f"--screenshot={arguments.pictures.resolve() / f'{name}-{scheme}.png'}", *options)
                continue
            text = READER.join(page.read_text(encoding="utf-8").rsplit("</body>", 1))
            # As a build without Chart.js makes it, for one page.
            bare = [re.sub(r"<script>/\*!.*?</script>", "<script></script>", text, flags=re.DOTALL)] if name == "lost" else []
            for variant in [text, *bare]:
                page.write_text(variant, encoding="utf-8")
                for complaint in complaints(browse(page, "--dump-dom"), figures, said, unsaid, charts=variant is text):
                    failed = True
                    print(f"{name}{'' if variant is text else ' without Chart.js'}: {complaint}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
