"""Pages opened in headless Chromium, at the width of a phone and of a desk: nothing overflows, nothing is fetched, no error is logged.

A page of this test frames the answer's page, so that its width is exactly that of the frame, and measures it; both come from a server on
this machine's loopback address.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

import roofplan
from roofplan.report.html import to_html

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: pages are not opened in a browser (apt-get install chromium)"
)
PHONE, SMALL_PHONE, DESK = 390, 320, 1280

LLAMA, H100 = "llama-3.1-8b", "h100-sxm"
ANSWERS = {
    "size": lambda: roofplan.size(LLAMA, H100, prompt=4096, output=512, concurrency=64),
    "nofit": lambda: roofplan.size("llama-3-70b", "a100-80gb"),
    "sweep": lambda: roofplan.sweep(LLAMA, H100, over="batch=1..256:x2", prompt=4096, output=512, tpot="25 ms"),
    "grid": lambda: roofplan.sweep(LLAMA, H100, over=["batch=1,8,64", "context=1024,4096,32768"]),
    "compare": lambda: roofplan.compare(LLAMA, H100, "h200", "mi300x", "rtx-4090"),
    "roofline": lambda: roofplan.roofline(LLAMA, H100, batches="1,8,64"),
    "speculate": lambda: roofplan.speculate(LLAMA, H100, draft_cost=0.1, acceptance=0.8, concurrency="1,8,64"),
    "advise": lambda: roofplan.advise(LLAMA, H100, concurrency=64),
    "claim": lambda: roofplan.claim("500 tok/s", LLAMA, "a100-80gb"),
    "kv": lambda: roofplan.kv(LLAMA, variants=["mqa", "mla:512+64", "window:4096"], on=H100),
    "budget": lambda: roofplan.error_budget("kl=0.01,cosine=0.99"),
    "figure": lambda: roofplan.figure("attention-bytes"),
}

# Measures frames: their own width, and whatever sticks out that no scrolling box holds; folds closed and then open.
HARNESS = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0">
<pre id="found"></pre>
<script>
function measured(doc, width) {
  const out = [];
  for (const element of doc.body.querySelectorAll("*")) {
    const box = element.getBoundingClientRect();
    if (!box.width || element.closest("svg g") || element.parentElement.closest(".scroll")) continue;
    if (box.right > width + 0.5 || box.left < -0.5) out.push(element.tagName + " " + box.right);
  }
  const style = (selector, name) => {
    const found = doc.querySelector(selector);
    return found ? doc.defaultView.getComputedStyle(found)[name] : null;
  };
  return {
    scroll: doc.documentElement.scrollWidth, client: doc.documentElement.clientWidth, out: out,
    wide: style("figure.wide", "display"), narrow: style("figure.narrow", "display"),
    size: style("body", "fontSize"), height: doc.documentElement.scrollHeight,
  };
}
const found = {};
for (const width of WIDTHS) {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:900px;border:0;display:block`;
  frame.addEventListener("load", () => {
    const doc = frame.contentDocument, closed = measured(doc, width);
    for (const fold of doc.querySelectorAll("details")) fold.open = true;
    found[width] = [closed, measured(doc, width)];
    document.getElementById("found").textContent = JSON.stringify(found);
  });
  frame.src = "report.html";
  document.body.append(frame);
}
</script>"""


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder, and remembers what was asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A server of a folder on the loopback address: where it is, and what it is asked for."""
    asked: list[str] = []
    handler = type("Handler", (Quiet,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def browsed(address: str, profile: Path) -> tuple[str, str]:
    """The document as Chromium has it after loading, and what it logged."""
    done = subprocess.run(
        [
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--no-first-run",
            f"--user-data-dir={profile}",
            "--window-size=1600,1000",
            "--enable-logging=stderr",
            "--virtual-time-budget=10000",
            "--dump-dom",
            address,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, done.stderr


def measured(page: str, folder: Path) -> tuple[dict[str, Any], str, list[str]]:
    """What the frames of each width measure, closed and open; what the browser logged; what it asked for."""
    (folder / "report.html").write_text(page, encoding="utf-8")
    harness = HARNESS.replace("WIDTHS", json.dumps([SMALL_PHONE, PHONE, DESK]))
    (folder / "harness.html").write_text(harness, encoding="utf-8")
    with serving(folder) as (address, asked):
        dom, log = browsed(f"{address}/harness.html", folder / "profile")
    found = re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)
    assert found is not None
    assert found[1], f"not measured: {log}"
    return json.loads(unescape(found[1])), log, asked


@needs_chromium
@pytest.mark.parametrize("name", ANSWERS)
def test_a_page_fits_a_phone_and_a_desk(name: str, tmp_path: Path) -> None:
    found, log, asked = measured(to_html(ANSWERS[name]()), tmp_path)
    assert set(found) == {str(width) for width in (SMALL_PHONE, PHONE, DESK)}
    for width, (closed, opened) in found.items():
        for state in (closed, opened):
            assert int(width) - 15 <= state["client"] <= int(width)  # without the scroll bar
            assert state["scroll"] <= state["client"], width
            assert state["out"] == [], width
            assert float(state["size"].removesuffix("px")) >= 16
        assert opened["height"] > closed["height"]
        if closed["wide"] is not None:
            shown = ("block", "none") if int(width) == DESK else ("none", "block")
            assert (closed["wide"], closed["narrow"]) == shown
    assert "CONSOLE" not in log, log
    assert set(asked) - {"/favicon.ico"} == {"/harness.html", "/report.html"}


@needs_chromium
def test_the_harness_sees_what_sticks_out_and_what_is_logged(tmp_path: Path) -> None:
    """So that the test above can fail."""
    broken = '<!DOCTYPE html><body><p style="width:900px">wide</p><script>console.error("broken")</script>'
    found, log, _ = measured(broken, tmp_path)
    state = found[str(PHONE)][0]
    assert state["scroll"] > PHONE
    assert any(item.startswith("P ") for item in state["out"])
    assert found[str(DESK)][0]["out"] == []
    assert "CONSOLE" in log
