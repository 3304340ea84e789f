"""Open a copy of a page in headless Chromium and report what happened in it."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--allow-file-access-from-files",
    # Timers use virtual time, so that the results do not depend on the speed of the machine.
    "--virtual-time-budget=20000",
)
# First script of the page: records errors and refused requests.
RECORDER = """<script>
window.seen = { errors: [], refused: [] };
addEventListener("error", (e) => seen.errors.push(String(e.message)), true);
addEventListener("unhandledrejection", (e) => seen.errors.push(String(e.reason)));
addEventListener("securitypolicyviolation", (e) => seen.refused.push(e.blockedURI));
const plain = console.error;
console.error = (...words) => { seen.errors.push(words.join(" ")); plain(...words); };
</script>"""
# Last script of the page: counts what was drawn, hovers over each chart, and writes the
# result into the page.
REPORTER = """<script>
addEventListener("load", () => setTimeout(async () => {
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  seen.charts = [];
  for (const chart of document.querySelectorAll(".chart")) {
    const traces = chart.data ?? [];
    let trace = traces.findIndex((t) => t.hoverinfo !== "skip" && t.x.length);
    const axes = traces[trace]?.yaxis ? "x" + traces[trace].yaxis : "xy";
    Plotly.Fx.hover(chart, [{ curveNumber: trace, pointNumber: 0 }], axes);
    await wait(200);
    seen.charts.push({
      title: chart.closest("figure").querySelector("figcaption").textContent,
      marks: chart.querySelectorAll(".scatterlayer .js-line, .scatterlayer .point, "
        + ".barlayer .point").length,
      hover: [...chart.querySelectorAll(".hoverlayer text")]
        .map((x) => x.textContent).join(" "),
      legend: [...chart.querySelectorAll(".legendtext")].map((x) => x.textContent),
    });
  }
  seen.requests = performance.getEntriesByType("resource").map((x) => x.name)
    .filter((name) => !name.startsWith("data:"));
  seen.pictures = [...document.images].map((x) => x.naturalWidth);
  seen.width = [document.documentElement.scrollWidth, innerWidth];
  const result = JSON.stringify(seen);
  document.title = "seen";
  const box = document.createElement("pre");
  box.id = "seen"; box.textContent = result;
  document.body.append(box);
  if (parent !== window) parent.postMessage(result, "*");
}, 500));
</script>"""
FRAME = """<!DOCTYPE html><body style="margin:0">
<iframe src="{name}" style="border:0;width:{width}px;height:{height}px"></iframe>
<pre id=seen></pre><script>addEventListener("message", (e) => {{
document.getElementById("seen").textContent = e.data; }});</script>"""


def open_page(page: Path, workspace: Path, width: int | None = None) -> dict:
    """Open `page` and return a report on it. If `width` is given, use a frame of this width."""
    text = page.read_text(encoding="utf-8").replace("<head>", f"<head>{RECORDER}", 1)
    body, end, _ = text.rpartition("</body>")
    copy = workspace / "page.html"
    copy.write_text(f"{body}{REPORTER}{end}</html>", encoding="utf-8")
    if width:
        copy = frame(copy, width, 4000)
    done = run(workspace, "--dump-dom", copy.as_uri())
    found = re.search(r'<pre id="seen">(.+?)</pre>', done.stdout, re.S)
    assert found, f"the page reported nothing:\n{done.stderr[-2000:]}"
    return json.loads(unescape(found[1]))


def frame(page: Path, width: int, height: int) -> Path:
    """Write a page that shows another one in a frame, because windows have a minimum width."""
    path = page.with_name("frame.html")
    path.write_text(FRAME.format(name=page.name, width=width, height=height))
    return path


def take_picture(
    page: Path, workspace: Path, picture: Path, width: int, height: int
) -> Path:
    """Save a screenshot of the top of the page and return its path."""
    shown = page
    if width < 500:
        shown = frame(Path(shutil.copy(page, workspace / "page.html")), width, height)
    size = f"--window-size={max(width, 500)},{height}"
    run(workspace, f"--screenshot={picture}", size, shown.as_uri())
    return picture


def run(workspace: Path, *arguments: str) -> subprocess.CompletedProcess:
    profile = workspace / "profile"
    shutil.rmtree(profile, ignore_errors=True)
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=True
    )
