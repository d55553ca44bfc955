"""Shell arithmetic: what is worked out, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofplan.checks.arithmetic import worked_out
from roofplan.checks.record import Place, Said
from roofplan.checks.words import lex

START = Place("serve.sh", 1, 1)
KNOWN = {name: Said(value, START) for name, value in {"NODES": "2", "GPUS": " 8 ", "NAME": "h100", "EMPTY": ""}.items()}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NODES * GPUS", 16),
        ("$NODES*${GPUS}", 16),
        ("(NODES+1) * 4 - 2", 10),
        ("17 / 5", 3),
        ("17 % 5", 2),
        ("-3 + 4", 1),
        ("${RANK:-0} * GPUS", 0),
        ("${EMPTY:-3} * 2", 6),
        ("RANK * 8", None),
        ("NAME + 1", None),
        ("EMPTY + 1", None),
        ("010 + 1", None),  # octal
        ("2 ** 62", None),
        ("1 / 0", None),
        ("1 +", None),
        ("", None),
        ("NODES > 1 ? 2 : 3", None),
        ("1" * 300, None),
        ("9" * 12 + "*" + "9" * 12, None),
        ("(" * 150, None),
    ],
)
def test_known_numbers_are_worked_out(text: str, value: int | None) -> None:
    assert worked_out(text, KNOWN) == value


@given(st.text("0123456789 +-*/%()NODES${}:_x", max_size=60))
def test_any_text_gives_a_number_or_nothing(text: str) -> None:
    found = worked_out(text, KNOWN)
    assert found is None or isinstance(found, int)


def test_a_sum_is_a_word_and_a_command_is_not() -> None:
    (command,) = lex("vllm serve m -dp $((NODES * GPUS)) -tp $((NODES * RANK)) -n $(nproc)", START, KNOWN).commands
    assert command.words[4].value == "16"
    assert sorted(command.unknown) == [6, 8]
