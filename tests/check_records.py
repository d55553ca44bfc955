"""Results of checks made by hand, for the tests of what is printed of them."""

from __future__ import annotations

from typing import Any

from roofplan.checks.finding import Finding, Severity
from roofplan.checks.record import Place, Pod, Said, Service
from roofplan.checks.result import CheckResult, Problem, in_order
from roofplan.checks.settings import Settings

MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
        args: ["serve", "llama", "--max-model-len", "131072"]
\t- --kv-cache-dtype=fp8
"""

# What people call files, services and models when they mean harm: terminals, runners, Markdown, HTML, XML, JSON, formulas, shells.
HOSTILE = {
    "escape": "a\x1b]0;owned\x07\x1b[31mb",
    "c1": "a\x9b31mb",
    "command": "::error file=x::owned",
    "late command": "x\n::error file=x::owned",
    "old command": "a ##[add-path]/tmp b",
    "pipeline command": "##vso[task.setvariable variable=x]y",
    "percent": "a%0A::warning::owned%25",
    "comma": "a,line=9,title=b:c",
    "pipe": "a | b | c",
    "html": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "comment": "<!-- a --> -->",
    "link": "[click](https://evil.example/x) https://evil.example www.evil.example",
    "image": "![x](https://evil.example/x.png)",
    "mention": "@everyone please see #1 and GH-1",
    "formula": "$\\frac{a}{b}$ `code` **bold** ~~gone~~",
    "entity": "&lt;b&gt; &amp;",
    "cdata": "]]> <![CDATA[x]]> & \"'",
    "right to left": "a\u202egnp.b\u2066c\u200bd",
    "line ends": "a\r\nb\u2028c\x85d",
    "null": "a\x00b\ufffeb",
    "surrogate": "a\udc80b",
    "long": "x" * 5000,
    "letters": "模型-é-ß",
}


def finding(rule: str = "does-not-fit", severity: Severity = "error", **changes: Any) -> Finding:
    """A finding about one value of a manifest."""
    file = changes.pop("file", "deploy/llama.yaml")
    place = Place(file, changes.pop("line", 3), changes.pop("column", 46))
    said = {
        "message": "31.2 GiB are short on each device.",
        "service": "llama",
        "fix": "--max-model-len 16384",
    } | changes
    return Finding(rule, severity, place, **said)


def service(name: str = "llama", file: str = "deploy/llama.yaml", **options: Any) -> Service:
    """A service with some options, all said in line 1."""
    place = Place(file, 1, 1)
    usd, engine = options.pop("usd_per_hour", None), options.pop("engine", "plain")
    replicas = options.pop("replicas", None)
    model = {"model": "llama-3.1-8b", "hardware": "h100-sxm5-80gb"} | options
    return Service(
        kind="deployment",
        name=name,
        place=place,
        engine=Said(engine, place),
        options={key: Said(value, place) for key, value in model.items() if value is not None},
        pod=Pod(replicas=None if replicas is None else Said(replicas, place)),
        usd_per_hour=None if usd is None else Said(usd, place),
    )


def result(
    *findings: Finding, fail_on: Any = "error", problems: tuple[Problem, ...] = (), **changes: Any
) -> CheckResult:
    """A result with the lines of the manifest."""
    lines = dict(enumerate(MANIFEST.splitlines(), start=1))
    files = {one.place.file for one in findings}
    return CheckResult(
        settings=Settings(fail_on=fail_on, select=changes.pop("select", ())),
        findings=in_order(findings),
        problems=problems,
        services=changes.pop("services", (service(),)),
        files=changes.pop("files", 1),
        lines={(file, number): text for file in files for number, text in lines.items()},
        **changes,
    )


def problem(
    message: str = "malformed YAML (expected a key)", file: str = "deploy/broken.yaml", line: int = 2
) -> Problem:
    """Something that could not be checked."""
    return Problem(Place(file, line, 1), message)


def hostile_result(text: str) -> CheckResult:
    """A result in which a text stands wherever people can put one."""
    return result(
        finding(message=text, file=text, service=text, fix=text, subject=text),
        finding("missing-shm", "warning", message=f"so: {text}", file=f"deploy/{text}.yaml"),
        finding("tp-over-pcie", "note", message=text),
        problems=(problem(text, text),),
        services=(service(text, text),),
        skipped={text: 2, "Service": 1},
        suppressed={"inline": 1},
    )
