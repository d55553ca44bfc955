"""What a load on a server says, from replies whose times are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roofplan.measure.server_client import Reply
from roofplan.measure.server_events import Usage
from roofplan.measure.server_load import Observed, Plan
from roofplan.measure.server_records import remarks_on


def reply(due: float, *texts: float, sent: float | None = None, output: int | None = None, **more: Any) -> Reply:
    usage = Usage(10, len(texts) if output is None else output)
    return Reply(due, due if sent is None else sent, texts, texts[-1] if texts else due, usage, "length", **more)


def closed(*replies: Reply, clients: int = 1, full_until: float = 10.0) -> Observed:
    return Observed(Plan(clients, 0.0, 100, 60.0, 4), 0.0, full_until, full_until + 1, replies)


def test_times_of_a_reply() -> None:
    one = reply(1.0, 1.5, 1.75, 2.25)
    assert (one.ttft_s, one.e2e_s, one.gaps_s) == (0.5, 1.25, (0.25, 0.5))
    assert one.tpot_s == 0.375
    # Two tokens in each event: half the time for each, and gaps as they were seen.
    two = reply(1.0, 1.5, 1.75, 2.25, output=7)
    assert two.tpot_s == 0.125
    assert two.gaps_s == one.gaps_s
    assert reply(1.0, 1.5).tpot_s is None


def test_a_time_counts_from_when_a_request_was_due() -> None:
    assert reply(1.0, 2.0, sent=1.6).ttft_s == 1.0


def test_without_counts_a_stop_for_length_tells_the_tokens() -> None:
    assert Reply(0, 0, (1.0, 2.0), 2.0, None, "length", max_tokens=8).output_tokens == 8
    assert Reply(0, 0, (1.0, 2.0), 2.0, None, "stop", max_tokens=8).output_tokens == 2


def test_throughput_counts_tokens_while_the_whole_load_was_there() -> None:
    # Ten seconds; the third reply has half of its events after them.
    seen = closed(reply(0, 1, 2, 3, 4), reply(4, 5, 6, 7, 8), reply(8, 9, 10, 11, 12), clients=1)
    assert seen.output_tokens_per_s == pytest.approx((4 + 4 + 2) / 10)
    assert seen.requests_per_s == pytest.approx(2 / 10)


def test_cut_replies_have_given_tokens_and_are_no_samples() -> None:
    seen = closed(reply(0, 1, 2, output=4), reply(2, 3, 4, 5, output=0, cut=True))
    assert seen.tokens == 4 + 3 * 2  # two tokens per event, as in the whole one
    assert len(seen.whole) == 1
    assert seen.cut == 1


def test_failed_replies_count_as_failures_alone() -> None:
    bad = reply(2, 3, 4, failure="closed mid-stream", detail="by peer")
    seen = closed(reply(0, 1, 2), bad, bad)
    assert seen.tokens == 2
    assert seen.failures == {"closed mid-stream": 2}
    assert list(remarks_on(seen)) == ["1 client: 2 of 3 requests failed: closed mid-stream (by peer)"]


def test_the_first_wave_stands_apart_where_there_is_another() -> None:
    first, second, third = reply(0, 3), reply(0, 4), reply(3, 3.5)
    assert closed(first, second, third, clients=2).settled == (third,)
    assert closed(first, second, third, clients=2).first_wave == (first, second)
    assert closed(first, second, clients=2).settled == (first, second)
    assert closed(first, second, third, clients=1).settled == (first, second, third)


def test_a_load_of_which_nothing_came() -> None:
    seen = closed(reply(0, failure="timed out"))
    assert seen.output_tokens_per_s is None
    assert seen.requests_per_s is None
    assert any("no request came to its end" in remark for remark in remarks_on(seen))


def test_a_late_client_and_dropped_arrivals_are_told() -> None:
    late = Observed(Plan(0, 5.0, 9, 60.0, 4), 0.0, 5.0, 6.0, (reply(0, 1.0, sent=0.5),), dropped=3)
    remarks = " ".join(remarks_on(late))
    assert "3 arrivals were not sent" in remarks
    assert "500 ms late" in remarks
    assert "computed 90% of the time" in " ".join(remarks_on(replace(late, busy=0.9)))
