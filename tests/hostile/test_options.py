"""Hostile options: values that are no number or out of range, layouts that cannot be, names that nobody knows."""

from __future__ import annotations

import itertools

import pytest
from hostile.processes import Case, Outcome, assert_refused, outcomes_of
from numeric_options import numeric_options

TOKENS = ["--prompt", "--output", "--max-model-len", "--max-num-batched-tokens", "--block-size"]
LAYOUT = ["--devices", "--tp", "--pp", "--dp", "--ep", "--cp"]
COUNTS = ["--concurrency", "--rate", *LAYOUT, "--max-num-seqs", "--max-loras", "--max-lora-rank"]
SIZES = [
    "--device-memory",
    "--activation-memory",
    "--runtime-memory",
    "--graph-memory",
    "--beside-memory",
    "--kv-cache-bytes",
]
SIZE = ("size", "mixtral-8x7b", "h100")
KV = ("kv", "llama-3.1-8b", "--on", "h100")
KV_OPTIONS = ["--context", "--tp", "--concurrency", "--memory-utilization", "--device-memory"]
OPTIONS = {
    **{option: (*SIZE, option) for option in [*TOKENS, *COUNTS, *SIZES, "--memory-utilization"]},
    **{f"kv {option}": (*KV, option) for option in KV_OPTIONS},
}
VALUES = {"zero": "0", "negative": "-1", "not a number": "nan", "infinite": "inf", "endless": "9" * 400}
MAY_BE_ZERO = {"--activation-memory", "--runtime-memory", "--graph-memory", "--beside-memory"}


def numbers() -> dict[str, Case]:
    """Each numeric option with some of the wrong values, each value with some options; tests/verbs/test_bad_input.py has all pairs."""
    cases = {}
    for (position, (option, words)), shift in itertools.product(enumerate(OPTIONS.items()), (0, 2)):
        kind = list(VALUES)[(position + shift) % len(VALUES)]
        text = f"{VALUES[kind]} GB" if words[-1] in SIZES else VALUES[kind]
        if not (kind == "zero" and option in MAY_BE_ZERO):
            cases[f"{kind} {option}"] = Case((*words, text), f"roofplan: {words[-1]}: got ")
    return cases


LAYOUTS = {
    "heads that do not divide": ("--tp 3", "--tp: got 3, want a divisor of the 32 heads of mixtral-8x7b"),
    "more ranks than heads": ("--tp 64", "--tp: got 64, want a divisor of the 32 heads"),
    "more stages than layers": ("--pp 33", "--pp: got 33, want at most 32, the number of layers"),
    "more expert ranks than experts": ("--tp 16 --ep 16", "--ep: got 16, want at most 8, the number of experts"),
    "expert ranks without ranks": ("--ep 4", "--ep: got 4, want a divisor or multiple of tp 1"),
    "expert ranks that do not divide": ("--tp 4 --ep 3", "--ep: got 3, want a divisor or multiple of tp 4"),
    "a product that is not the devices": ("--devices 8 --tp 2 --pp 2 --dp 1", "tp 2 x pp 2 x dp 1 = 4, want a product of 8"),
    "a product that does not divide them": ("--devices 3 --tp 2", "tp x pp x dp x cp = 2, want a divisor of 3"),
    "more ranks than devices": ("--devices 2 --tp 4", "tp x pp x dp x cp = 4, want a divisor of 2"),
    "devices that no head divides": ("--devices 7", "--devices: got 7, want a divisor of the 32 heads"),
    "a sequence beyond the engine's": ("--prompt 900 --output 200 --max-model-len 1000", "got 900 + 200 tokens, want at most 1000"),
    "a context beyond the model's": ("--prompt 40000 --strict", "context: got 40256 tokens, want at most 32768"),
}  # fmt: skip
LINES = {
    "experts that are not there": ("size gpt2 h100 --tp 2 --ep 2", "--ep: got 2, want 1: gpt2 has no experts"),
    "a model with a slip": ("size llama-3.1-8bb h100", "model: got llama-3.1-8bb, want one of the"),
    "a model with a slip, answered": ("size llama-3.1-8bb h100", "(did you mean llama-3.1-8b"),
    "a device with a slip": ("size gpt2 h100-sxm6", "(did you mean h100-sxm5-80gb"),
    "an id that nobody knows": ("size some-org/Some-Model-7B h100", "model: got some-org/Some-Model-7B, want one of the"),
    "an engine with a slip": ("size gpt2 h100 --engine plane", "engine: got plane, want one of gpt-fast, llama.cpp, plain, sglang, tensorrt-llm, tensorrt-llm-triton, vllm (did you mean plain?)"),
    "a weight format with a slip": ("size gpt2 h100 --weights bf17", "number format: got bf17"),
    "a cache format with a slip": ("kv gpt2 --kv fp9", "number format: got fp9"),
    "an activation format with a slip": ("size gpt2 h100 --activations fp61", "number format: got fp61"),
    "a tensor class that is none": ("size gpt2 h100 --weights brain=int8", "--weights: got brain, want all or one of"),
    "a class without a format": ("size gpt2 h100 --weights mlp=", "number format: got an empty name"),
    "a path to nowhere": ("size ../../../nowhere/config.json h100", "file: got no such file or directory"),
    "a path for a device": ("size gpt2 /etc/passwd", "/etc/passwd:1:"),
    "both from standard input": ("size - -", "HARDWARE: got -, want a name or path"),
    "an unknown option": ("size gpt2 h100 --promt 5", "No such option: --promt"),
    "an option of another verb": ("kv gpt2 --prompt 5", "No such option: --prompt"),
    "an option without its value": ("size gpt2 h100 --prompt", "'--prompt' requires an argument"),
    "an engine version that nobody knows": ("size gpt2 h100 --engine vllm@0.3", "engine: got vllm@0.3, want a version from vllm@0.6 on"),
    "an engine without versions": ("size gpt2 h100 --engine plain@2", "want plain: its profile has no versions"),
    "a version that is none": ("size gpt2 h100 --engine vllm@new", "want vllm@VERSION, such as vllm@"),
    "a block that the engine has not": ("size gpt2 h100 --engine vllm --block-size 20", "--block-size: got 20, want a power of two below or a multiple of 16"),
    "blocks of an engine without": ("size gpt2 h100 --block-size 16", "--block-size: got 16, want an engine with blocks (plain)"),
    "a cache in two ways": ("size gpt2 h100 --kv-cache-bytes 1GiB --memory-utilization 0.5", "got --kv-cache-bytes and --memory-utilization, want one of them"),
    "a share of a given cache": ("size gpt2 h100 --kv-cache-bytes 1GiB --solve min-utilization", "got --kv-cache-bytes, want no bytes of the cache"),
    "a rank without adapters": ("size gpt2 h100 --max-lora-rank 8", "--max-lora-rank: got 8, want --max-loras beside it"),
    "an unknown question": ("size gpt2 h100 --solve max-fun", "'max-fun' is not one of"),
    "a log that is not there": ("size gpt2 h100 --from-log nowhere.log", "nowhere.log: file: got no such file"),
    "a log for a spec": ("size gpt2 h100 --from-log pyproject.toml", "pyproject.toml"),
    "a truth file that is none": ("accuracy memory --data pyproject.toml", "pyproject.toml:"),
    "a column that is not there": ("accuracy memory --by color", "--by: got color, want columns of the file"),
    "an unknown verb": ("siez gpt2 h100", "No such command 'siez'. Did you mean 'size'?"),
    "no device": ("size gpt2", "HARDWARE: got nothing, want a name or a path"),
    "no model": ("kv", "MODEL: got nothing, want a name or a path (only --error-budget and --tensors go without a model)"),
    "no model for an option of one": ("kv --error-budget kl=0.01 --tp 2", "MODEL: got nothing, want a name or a path"),
    "an argument that is missing": ("advise gpt2", "Missing argument 'HARDWARE'"),
    "one argument too many": ("kv gpt2 h100", "unexpected extra argument"),
    "an unknown output": ("kv gpt2 --format xml", "'xml' is not one of 'text', 'json', 'markdown', 'csv'"),
    "an unknown colour": ("kv gpt2 --color blue", "'blue' is not one of"),
    "a flag with a value": ("size gpt2 h100 --strict=yes", "--strict"),
}  # fmt: skip
STRANGE = {
    "an escape code for a model": (("size", "\x1b]0;x\x07", "h100"), "model: got \\x1b]0;x\\x07, want"),
    "an escape code for a verb": (("\x1b[31m",), "\\x1b[31m"),
    "an escape code for an option": ((*KV, "--\x1b[31m"), "No such option: --\\x1b[31m"),
    "an escape code for a number": ((*KV, "--context", "\x1b[31m5"), "--context: got '\\x1b[31m5'"),
    "an escape code in a path": (("kv", "/nowhere/\x1b[2J\u202e.json"), "/nowhere/\\x1b[2J\\u{202e}.json: file: got no such"),
    "markup for a model": (("kv", "[red]x[/y]"), "model: got [red]x[/y], want"),
    "lines for a model": (("kv", "a\nroofplan: b"), "model: got a\\x0aroofplan: b, want"),
    "bytes that are no text": (("kv", b"\xff\xfe.json".decode("utf-8", "surrogateescape")), "\\u{dcff}\\u{dcfe}.json: file"),
    "an empty model": (("kv", ""), "model: got an empty name, want"),
    "an empty format": ((*KV, "--kv", ""), "number format: got an empty name, want"),
    "an empty number": ((*KV, "--context", ""), "--context: got '', want"),
    "an endless model": (("kv", "x" * 100_000), "model: got xxx"),
    "an endless path": (("kv", "./" + "x" * 100_000), ": file: got file name too long"),
    "an endless folder": (("kv", "x/" * 50_000), "model: got x/x/"),
    "two names at once": (("kv", 'llama3.1-8b", "llama-3.1-8b-instruct'), "model: got llama3.1-8b"),
}  # fmt: skip
CASES = {
    **numbers(),
    **{name: Case((*SIZE, *words.split()), said) for name, (words, said) in LAYOUTS.items()},
    **{name: Case(tuple(words.split()), said) for name, (words, said) in LINES.items()},
    **{name: Case(words, said) for name, (words, said) in STRANGE.items()},
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """What came of each case."""
    return outcomes_of(CASES)


@pytest.mark.parametrize("name", CASES)
def test_hostile_words_are_refused_in_one_line(name: str, outcomes: dict[str, Outcome]) -> None:
    assert_refused(CASES[name], outcomes[name])


def test_every_numeric_option_is_tried() -> None:
    """Those of the verbs that take the most of them; tests/verbs/test_bad_input.py tries those of all verbs, without a process for each."""
    tried = {(words[0], words[-1]) for words in OPTIONS.values()}
    assert tried == {(verb, option) for verb, option in numeric_options() if verb in {"size", "kv"}}
