"""Answers as pages: what they hold, that they need nothing else, and that foreign text stays text."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
from measured import cpu_run, run_of, timed
from shapes import HA, HH, M7, M8, deploy

import roofplan
from roofplan.accuracy.speculation import speculation_accuracy
from roofplan.measure.comparing import compare as compare_runs
from roofplan.measure.gates import gates_of
from roofplan.measure.overlay import overlay
from roofplan.measure.results import MeasureResult
from roofplan.planner.comparing import Alternative
from roofplan.planner.comparing import compare as compare_sized
from roofplan.planner.results import Answer
from roofplan.planner.sizing import size_deployment
from roofplan.report.canvas import DARK, LIGHT
from roofplan.report.html import to_html
from roofplan.report.memory_bar import memory_bar, parts_of
from roofplan.report.sections import ARRANGERS, report_of

LLAMA, H100 = "llama-3.1-8b", "h100-sxm"
VOID = {"meta", "br"}
ANSWERS = {
    "size": lambda: roofplan.size(LLAMA, H100, prompt=4096, output=512, concurrency=64),
    "size that does not fit": lambda: roofplan.size("llama-3-70b", "a100-80gb"),
    "sweep": lambda: roofplan.sweep(LLAMA, H100, over="batch=1..64:x2", context=4096, tpot="25 ms"),
    "sweep of nothing that fits": lambda: roofplan.sweep("llama-3-70b", "rtx-4090", over="batch=1,2"),
    "compare": lambda: roofplan.compare(LLAMA, H100, "h200"),
    "roofline": lambda: roofplan.roofline(LLAMA, H100),
    "speculate": lambda: roofplan.speculate(LLAMA, H100, draft_cost=0.1, acceptance=0.8, k="1..4"),
    "figure": lambda: roofplan.figure("cache-steps"),
    "trials": lambda: roofplan.speculate(simulate=True, rounds=2000),
    "kv": lambda: roofplan.kv(LLAMA),
    "kv variants": lambda: roofplan.kv(LLAMA, variants=["mqa", "window:4096"], on=H100),
    "error budget": lambda: roofplan.error_budget("kl=0.01"),
    "advise": lambda: roofplan.advise(LLAMA, H100),
    "claim": lambda: roofplan.claim("500 tok/s", LLAMA, "a100-80gb"),
    "gain": lambda: roofplan.claim("4x", LLAMA, "a100-80gb", by="weights", weights="int4-g128", concurrency=256),
    "measure": lambda: MeasureResult(cpu_run(), gates_of(cpu_run(), None), overlay(cpu_run())),
    "measure without ceilings": lambda: MeasureResult(run_of([timed("server.ttft", 0.2, concurrency=4)])),
    "measure compare": lambda: compare_runs(cpu_run(), cpu_run(bf16=150e9)),
    "accuracy": speculation_accuracy,
}
DRAWN = {"sweep", "compare", "roofline", "speculate", "figure", "measure"}


@cache
def answer(name: str) -> Answer:
    return ANSWERS[name]()


@cache
def page(name: str) -> str:
    return to_html(answer(name))


class Reader(HTMLParser):
    """Checks that tags are balanced, and collects what a page holds."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.cells: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += data
            if self.open[-1] in {"td", "th"}:
                self.cells.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader


def test_every_kind_of_answer_is_tried() -> None:
    """Those of memory and speed take longer to compute, and are made as that of speculation is."""
    assert {answer(name).command for name in ANSWERS} == ARRANGERS.keys() - {"accuracy memory", "accuracy speed"}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_page_holds_the_whole_report(name: str) -> None:
    found, report = read(page(name)), report_of(answer(name))
    assert page(name).startswith("<!DOCTYPE html>\n<html lang")
    for title in (section.title for section in report.sections):
        assert title in found.text
    for section in report.sections:
        for row in section.rows:
            assert all(cell in found.cells for cell in row if cell)
    assert all(remark in found.text for remark in report.remarks)
    assert report.verdict in found.text


@pytest.mark.parametrize("name", ANSWERS)
def test_a_page_has_every_derivation_in_a_fold(name: str) -> None:
    found, said = read(page(name)), answer(name)
    folds = len(said.explain()) + bool(said.assumptions)
    assert found.seen.count("details") == found.seen.count("summary") == folds
    for line in said.explain():
        assert line.formula in found.text
        assert line.numbers in found.text
    for assumption in said.assumptions:
        assert assumption.source in found.text


@pytest.mark.parametrize("name", ANSWERS)
def test_a_page_needs_nothing_else(name: str) -> None:
    text, found = page(name), read(page(name))
    assert not {"script", "link", "img", "iframe", "object", "embed", "base", "form"} & set(found.seen)
    for _, attribute, value in found.attributes:
        assert not attribute.startswith("on")
        assert attribute not in {"src", "srcset", "action", "background", "data"}
        if attribute in {"href", "xlink:href"}:
            assert (value or "").startswith("#")
    assert "@import" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    assert "default-src 'none'" in text  # and the page itself forbids it


@pytest.mark.parametrize("name", ANSWERS)
def test_pictures_are_drawn_for_desk_and_phone_in_the_colours_of_the_page(name: str) -> None:
    found, text = read(page(name)), page(name)
    kinds = [value for tag, attribute, value in found.attributes if (tag, attribute) == ("figure", "class")]
    assert kinds == (["wide", "narrow"] if name in DRAWN else [])
    labels = [value for tag, attribute, value in found.attributes if (tag, attribute) == ("svg", "aria-label")]
    assert len(labels) == found.seen.count("svg") == (2 if name in DRAWN else int(name.startswith("size")))
    assert all(labels)
    ids = [value for _, attribute, value in found.attributes if attribute == "id"]
    assert len(ids) == len(set(ids))
    used = {value[1:] for _, attribute, value in found.attributes if attribute == "xlink:href" and value}
    used |= {target[1:] for target in re.findall(r"url\((#[^)]*)\)", text)}
    assert used <= set(ids)
    # A colour of the light theme that is left would stay as it is on dark paper.
    inside = text[text.index("<body>") :].lower()
    for colour in {LIGHT.paper, LIGHT.ink, LIGHT.faint, LIGHT.grid, *LIGHT.series}:
        assert f"fill: {colour.lower()}" not in inside
        assert f"stroke: {colour.lower()}" not in inside


def test_the_page_is_light_or_dark_as_its_reader_is() -> None:
    text = page("size")
    assert f"--paper:{LIGHT.paper};" in text
    assert f"--paper:{DARK.paper};" in text.split("prefers-color-scheme: dark")[1]
    assert '<meta name="color-scheme" content="light dark">' in text
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text


@pytest.mark.parametrize("name", ["size", "sweep", "compare"])
def test_the_same_answer_gives_the_same_bytes(name: str) -> None:
    assert to_html(ANSWERS[name]()) == page(name)


HOSTILE = "<script>alert('x')</script> & \"quoted\" $x_1^2$ \x1b[31m \u202e end"


@pytest.mark.parametrize("kind", ["size", "compare", "figure"])
def test_foreign_names_stay_text(kind: str) -> None:
    d = deploy(replace(M8, name=HOSTILE), replace(HA, name=f"{HOSTILE} device"))
    said = {
        "size": lambda: size_deployment(d),
        "compare": lambda: compare_sized([Alternative(HOSTILE, size_deployment(d), 1.0)]),
        "figure": lambda: roofplan.figure("cache-growth", model=[d.model, M7], hardware=d.hardware),
    }[kind]()
    text, found = to_html(said), read(to_html(said))
    assert "<script" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "<script>alert('x')</script>" in found.text
    assert "script" not in found.seen


def test_the_bar_is_the_memory_of_the_device() -> None:
    plan = answer("size").memory  # type: ignore[attr-defined]
    parts = {part.name: part.size for part in parts_of(plan)}
    assert sum(parts.values()) == plan.total_bytes
    assert parts["weights"] == plan.weights_bytes
    assert parts["cache of 64 sequences"] == 64 * plan.kv_bytes_per_sequence
    assert parts["free for more cache"] == plan.free_bytes
    drawn = [float(width) for width in re.findall(r'<rect [^>]*width="([0-9.]+)"', memory_bar(plan))]
    assert sum(drawn) == pytest.approx(1000, abs=2.5 * len(drawn))
    assert drawn[0] == pytest.approx(1000 * plan.weights_bytes / plan.total_bytes, abs=2.1)


def test_a_bar_that_is_too_long_shows_where_the_memory_ends() -> None:
    plan = answer("size that does not fit").memory  # type: ignore[attr-defined]
    parts = parts_of(plan)
    assert sum(part.size for part in parts) > plan.total_bytes
    end = re.search(r'<rect x="([0-9.]+)" y="0" width="4"', memory_bar(plan))
    assert end is not None
    assert float(end[1]) == pytest.approx(1000 * plan.total_bytes / sum(part.size for part in parts), abs=0.01)
    assert "end of the memory: 80.00 GiB" in memory_bar(plan)


def test_a_page_without_a_picture_does_not_load_the_drawing_library() -> None:
    code = (
        "import sys, roofplan\nfrom roofplan.report.html import to_html\n"
        "to_html(roofplan.size('gpt2', 'h100-sxm'))\nprint('matplotlib' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_numbers_stand_right_and_words_left() -> None:
    text = to_html(size_deployment(deploy(M8, HH)))
    assert '<td class="n">' in text
    assert re.search(r"<tr><th scope=\"row\">decode</th><td>[a-z_]+</td>", text)
