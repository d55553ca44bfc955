"""Reading variants: what each shape means, and what is said of a malformed one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapes import M8, number_format

from roofplan import engines
from roofplan.errors import DomainError, RoofplanError, UnknownNameError
from roofplan.planner.kv_cache import cache_layout
from roofplan.planner.variant_text import MOST_VARIANTS, SHAPES, parse_variant, parse_variants

BF16 = number_format("bf16")


def cache(text: str, tokens: int = 8192) -> tuple[int, int]:
    """Growth and sequence of M8 with a variant."""
    layout = cache_layout(*parse_variant(text, engines.load_format).of(M8, BF16))
    return layout.bytes_per_token, layout.bytes_per_sequence(tokens)


@pytest.mark.parametrize(
    ("text", "per_token", "sequence"),
    [
        ("mqa", 16384, 16384 * 8192),
        ("gqa:8", 131072, 131072 * 8192),
        ("GQA : 2", 32768, 32768 * 8192),
        ("mla:512+64", 36864, 36864 * 8192),
        ("mla:256+0", 16384, 16384 * 8192),
        ("window:4096", 0, 536870912),
        ("interleave:5:1", 20480, 281018368),
        ("interleave:3:1:2048", 32768, 4096 * (8 * 8192 + 24 * 2048)),
        ("sinks:4+1020", 0, 131072 * 1024),
        ("h2o:0.2", 26214, 131072 * 1638),
        ("h2o:20%", 26214, 131072 * 1638),
        ("share:2", 65536, 65536 * 8192),
        ("kv=fp8", 65536, 65536 * 8192),
        ("kv=q8_0", 69632, 69632 * 8192),
        ("kv=nvfp4", 36864, 36864 * 8192),
        ("kv=kivi2", 24576, 24576 * (8192 - 128) + 131072 * 128),
        ("kv=kivi4", 40960, 40960 * (8192 - 128) + 131072 * 128),
        ("gqa:4+kv=fp8", 32768, 32768 * 8192),
        ("share:2+window:4096", 0, 65536 * 4096),
        ("mla:512+64+kv=fp8", 18432, 18432 * 8192),
    ],
)
def test_bytes_of_m8_by_hand(text: str, per_token: int, sequence: int) -> None:  # F3.1 to F3.7
    assert cache(text) == (per_token, sequence)


@pytest.mark.parametrize(
    ("text", "decided", "exact_tokens"),
    [
        ("mqa", "training", None),
        ("window:4096", "training", None),
        ("sinks:4+1020", "serving", 1024),
        ("h2o:0.2", "serving", 0),
        ("kv=fp8", "serving", 0),
        ("kv=kivi2", "serving", 128),
        ("sinks:4+60+kv=kivi2", "serving", 64),
        ("sinks:4+1020+gqa:4", "training", None),
    ],
)
def test_who_decides_and_up_to_where_it_is_exact(text: str, decided: str, exact_tokens: int | None) -> None:
    variant = parse_variant(text, engines.load_format)
    assert (variant.decided, variant.exact_tokens) == (decided, exact_tokens)
    assert variant.title
    assert variant.why


def test_several_in_one_text_and_in_many() -> None:
    parsed = parse_variants(["mqa, gqa:8", "kv=fp8"], engines.load_format)
    assert [variant.text for variant in parsed] == ["mqa", "gqa:8", "kv=fp8"]


MALFORMED = [
    ("mqa", "mqa:1"),
    ("mqa", "mqa="),
    ("gqa", "gqa"),
    ("gqa", "gqa:"),
    ("gqa", "gqa:0"),
    ("gqa", "gqa:-8"),
    ("gqa", "gqa:eight"),
    ("gqa", "gqa=8"),
    ("gqa", "gqa:99999999999"),
    ("mla", "mla:512"),
    ("mla", "mla:512+64+1"),
    ("mla", "mla:0+64"),
    ("mla", "mla:512+x"),
    ("window", "window:4k"),
    ("window", "window:0"),
    ("interleave", "interleave:5"),
    ("interleave", "interleave:5:1:1024:2"),
    ("interleave", "interleave:5:0"),
    ("sinks", "sinks:1024"),
    ("sinks", "sinks:4+0"),
    ("h2o", "h2o:1.5"),
    ("h2o", "h2o:0"),
    ("h2o", "h2o:nan"),
    ("share", "share:1.5"),
    ("kv", "kv="),
    ("kv", "kv:fp8"),
    ("kv", "kv=fp9"),
]


@pytest.mark.parametrize(("kind", "text"), MALFORMED)
def test_a_malformed_variant_is_told_its_shape(kind: str, text: str) -> None:
    with pytest.raises(DomainError) as caught:
        parse_variant(text, engines.load_format)
    assert str(caught.value).startswith(f"--variant: got {text!r}, want {SHAPES[kind][1]}")


def test_near_names() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean window:TOKENS such as window:4096\?"):
        parse_variant("windw:4096", engines.load_format)
    with pytest.raises(DomainError, match="did you mean"):
        parse_variant("kv=nvfp", engines.load_format)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([""], "got nothing"),
        (["mqa,"], "got nothing between commas"),
        ([","], "got nothing between commas"),
        ([" , ,"], "got nothing between commas"),
        (["mqa", ""], "got nothing"),
        (["mqa,mqa"], "got mqa twice"),
        (["x" * 100], "a text of 100 characters"),
        (["mqa+gqa:4"], "one change of the heads"),
        (["window:8+sinks:4+4"], "one change of the reach"),
        (["kv=fp8+kv=q8_0"], "one change of the format"),
        ([",".join(f"gqa:{n}" for n in range(1, MOST_VARIANTS + 2))], "at most 16"),
        ([5], "a value of type int"),
        (["8:gqa"], "want mqa, gqa:8"),
        (["=fp8"], "want mqa, gqa:8"),
    ],
)
def test_refused(texts: list, said: str) -> None:
    with pytest.raises(RoofplanError) as caught:
        parse_variants(texts, engines.load_format)
    assert said in str(caught.value)


def test_a_model_that_cannot_be_changed_so_is_named() -> None:
    variant = parse_variant("gqa:5", engines.load_format)
    with pytest.raises(DomainError, match="--variant: got gqa:5 of m8, want a divisor of 32"):
        variant.of(M8, BF16)


@given(st.text(max_size=30) | st.from_regex(r"\A[a-z0-9:+=.%, ]{0,30}\Z"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parsed = parse_variants([text], engines.load_format)
    except RoofplanError as error:
        said = str(error)
    else:
        said = " ".join(variant.title for variant in parsed)
    assert said
    assert said.isprintable()
