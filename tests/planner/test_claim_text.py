"""Reading claims: every unit, and what is refused with which hint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofplan.errors import QuantityError
from roofplan.planner.claim_text import Claim, parse_claim

UNITS = [
    ("500 tok/s", "rate", 500.0),
    ("500tok/s", "rate", 500.0),
    ("500 tokens/s", "rate", 500.0),
    ("500 t/s", "rate", 500.0),
    ("500 TPS", "rate", 500.0),
    ("2e3 tokens per second in total", "rate", 2000.0),
    ("12.5 tok/s aggregate", "rate", 12.5),
    ("40 tok/s/user", "user_rate", 40.0),
    ("40 tok/s per user", "user_rate", 40.0),
    ("40 tokens per second per request", "user_rate", 40.0),
    ("900 tok/s/GPU", "device_rate", 900.0),
    ("20 ms/token", "token_time", 0.02),
    ("20 ms per token", "token_time", 0.02),
    ("20 ms TPOT", "token_time", 0.02),
    ("ITL 20 ms", "token_time", 0.02),
    ("300 ms TTFT", "first_token", 0.3),
    ("TTFT: 300ms", "first_token", 0.3),
    ("0.3 s to first token", "first_token", 0.3),
    ("360 sequences", "sequences", 360.0),
    ("8 concurrent users", "sequences", 8.0),
    ("2.4x", "gain", 2.4),
    ("256-fold", "gain", 256.0),
    ("3 times faster", "gain", 3.0),
]


@pytest.mark.parametrize(("text", "kind", "value"), UNITS)
def test_every_unit(text: str, kind: str, value: float) -> None:
    assert parse_claim(text) == Claim(text, kind, pytest.approx(value, rel=1e-15))


REFUSED = [
    ("500", "add the unit: 500 tok/s"),
    ("20 ms", "a time of what? 20 ms/token or 20 ms TTFT"),
    ("500 tok", "tokens per second? 500 tok/s"),
    ("500 tok/min", "tokens per second? 500 tok/s"),
    ("1.2k tok/s", "no prefix"),
    ("1,000 tok/s", "no thousands separators"),
    ("-5 tok/s", "no sign"),
    ("nan tok/s", "the number first"),
    ("tok/s 500", "the number first"),
    ("", "the number first"),
    ("0 tok/s", "greater than zero"),
    ("0 ms/token", "greater than zero"),
    ("3.5 sequences", "a whole number"),
    ("1e400 tok/s", "at most"),
    ("TTFT 5", "TTFT 5 ms"),
    ("TTFT 5 ms/token", "TTFT 5 ms"),
    ("500 tok/s/node", ""),
    ("500 GB/s", ""),
    ("20 MS TTFT", ""),
    ("٣ tok/s", "the number first"),
    ("500 tok/s \x1b[31m", ""),
    ("5" * 90 + " tok/s", "a text of"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_what_claims_nothing_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_claim(text)
    line = str(caught.value)
    assert line.startswith("CLAIM: got ")
    assert said in line
    assert line.isprintable()


@pytest.mark.parametrize("value", [500, 500.0, None, ["500 tok/s"]])
def test_only_text_is_a_claim(value: object) -> None:
    with pytest.raises(QuantityError, match="CLAIM"):
        parse_claim(value)


@given(st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        claim = parse_claim(text)
    except QuantityError as error:
        claim = Claim(str(error), "rate", 1.0)
    assert claim.text.isprintable()
    assert claim.value > 0
    assert claim.speed > 0
    assert claim.show(claim.speed).isprintable()


@given(st.integers(1, 10**6))
def test_times_are_turned_over(milliseconds: int) -> None:
    claim = parse_claim(f"{milliseconds} ms/token")
    assert claim.is_time
    assert claim.speed * claim.value == pytest.approx(1, rel=1e-15)


def test_a_speed_is_shown_in_the_unit_of_the_claim() -> None:
    shown = [parse_claim(text).show(50.0) for text in ("1 tok/s", "1 tok/s/user", "1 ms/token", "1 ms TTFT", "1 users")]
    assert shown == ["50.0 tokens/s", "50.0 tokens/s/user", "20.0 ms/token", "20.0 ms TTFT", "50 sequences"]
    assert parse_claim("2x").show(2.40114) == "2.4-fold"
    assert parse_claim("1 ms TTFT").show(0.0) == "no end"
