"""The stream of a server: events whatever way its bytes are cut, and nothing but a fault for what is none."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofplan.measure import server_events as events
from roofplan.measure.server_events import Event, EventReader, ServerFaultError, Usage, check_usage, read_usage

STREAM = (
    b"\xef\xbb\xbf: begin\r\n\r\n"
    b'event: message\r\ndata: {"choices": [{"text": "a"}]}\r\n\r\n'
    b'data: {"choices":\ndata: [{"delta": {"content": "\xc3\xa9"}}]}\n\n'
    b'data:{"choices": [{"delta": {"reasoning_content": "c"}}]}\n\n'
    b'data: {"choices": [{"text": "", "finish_reason": "length"}]}\r\r'
    b'data: {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}}\n\n'
    b"data: [DONE]\n\n"
)
READ = [
    Event(has_text=True, finish="", usage=None),
    Event(has_text=True, finish="", usage=None),
    Event(has_text=True, finish="", usage=None),
    Event(has_text=False, finish="length", usage=None),
    Event(has_text=False, finish="", usage=Usage(3, 3)),
    Event(has_text=False, finish="", usage=None, is_done=True),
]


def read(*chunks: bytes, tokens: int = 8) -> list[Event]:
    reader = EventReader(tokens)
    return [event for chunk in chunks for event in reader.feed(chunk)] + list(reader.finish())


@given(st.lists(st.integers(0, len(STREAM)), max_size=12).map(sorted))
def test_events_do_not_depend_on_how_bytes_are_cut(cuts: list[int]) -> None:
    ends = [0, *cuts, len(STREAM)]
    assert read(*(STREAM[a:b] for a, b in itertools.pairwise(ends))) == READ


def test_one_byte_at_a_time() -> None:
    assert read(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == READ


@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from([b"data: ", b"\n\n", b"\r", b"{", b'{"usage":', b"[DONE]"]),
        max_size=20,
    )
)
def test_any_bytes_are_events_or_a_fault(chunks: list[bytes]) -> None:
    with contextlib.suppress(ServerFaultError):
        assert all(isinstance(event, Event) for event in read(*chunks))


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from(["choices", "usage", "error", "id"]), JSON | st.fixed_dictionaries({"prompt_tokens": JSON})
    )
)
def test_any_object_is_an_event_or_a_fault(said: dict[str, Any]) -> None:
    with contextlib.suppress(ServerFaultError):
        event = events.read_event(json.dumps(said).encode())
        assert event.usage is None or event.usage.prompt >= 0


@pytest.mark.parametrize("total", [None, 5])
def test_usage(total: int | None) -> None:
    assert read_usage({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": total}) == Usage(3, 2)
    assert read_usage({"prompt_tokens": 3}) == Usage(3, 0)
    assert read_usage(None) is None


@pytest.mark.parametrize("count", [-1, True, 1.0, "1", 10**10, [1], {}])
def test_counts_that_are_none(count: Any) -> None:
    with pytest.raises(ServerFaultError, match="contradictory usage"):
        read_usage({"prompt_tokens": count, "completion_tokens": 1})


def test_counts_and_events_agree_within_one_that_flushes() -> None:
    check_usage(Usage(9, 4), texts=5, max_tokens=4, words=9)
    check_usage(Usage(9, 4), texts=1, max_tokens=4, words=9)  # several tokens in one event
    with pytest.raises(ServerFaultError, match="in 6 events"):
        check_usage(Usage(9, 4), texts=6, max_tokens=4, words=9)


def test_bounds_grow_with_what_was_asked_for() -> None:
    many = b'data: {"choices": [{"text": "a"}]}\n\n' * 1000
    assert len(read(many, tokens=1000)) == 1000
    with pytest.raises(ServerFaultError, match="flood"):
        read(many, tokens=1)
