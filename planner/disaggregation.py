"""Closed forms of disaggregation: prompts are computed by one pool of workers and decoded by another, and their cache moves between them.

Symbols: n_L layers, S prompt, G output, c cache bytes per token, W bandwidth between the pools, lambda arrivals per second.
Sources: formula F12.7; DistServe (arXiv 2401.09670); jax-ml/scaling-book, applied-inference.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from .domain import count, finite, not_negative, positive
from .queueing import mean_wait_s


def cache_transfer_s(cache_bytes: float, bandwidth_bytes_per_s: float) -> float:
    """Time to hand a prompt's cache from a prefill to a decode worker as a whole, S c / W (formula F12.7).

    Raises
    ------
    DomainError : for a negative size or a bandwidth that is not positive

    >>> cache_transfer_s(8192 * 327680, 50e9)
    0.0536870912
    """
    size = not_negative("cache_bytes", cache_bytes)
    return finite("transfer_s", size / positive("bandwidth_bytes_per_s", bandwidth_bytes_per_s))


def exposed_transfer_s(transfer_s: float, layers: int, prefill_s: float) -> float:
    """What is left of a transfer after a prefill that sends each layer when it is computed (formula F12.7).

    x + (n_L - 1) max(0, x - p), with x = transfer / n_L and p = prefill / n_L of one layer: the last layer alone where computing a layer
    takes longer than sending it. Layers are taken as equal.

    Raises
    ------
    DomainError : without a layer, or for a negative time
    """
    sent = not_negative("transfer_s", transfer_s) / count("layers", layers)
    late = (layers - 1) * max(0.0, sent - not_negative("prefill_s", prefill_s) / layers)
    return finite("exposed transfer", sent + late)


def prefill_workers_per_decode_worker(prefill_s: float, step_s: float, decode_batch: float, output: float) -> float:
    """Ratio of the pools that keep pace: t_prefill B / (t_step G) (formula F12.7).

    A prefill worker finishes a request every t_prefill, a decode worker B of them every G steps.

    Raises
    ------
    DomainError : for a negative prefill time, or another number that is not positive

    >>> round(prefill_workers_per_decode_worker(0.91, 0.019, 32, 512), 12)
    2.993421052632
    """
    decode_s = positive("decode_s", positive("step_s", step_s) * positive("output", output))
    return finite("ratio", not_negative("prefill_s", prefill_s) * positive("decode_batch", decode_batch) / decode_s)


@dataclass(frozen=True, slots=True)
class DisaggregatedTtft:
    """Mean time to the first token of a pair of pools, in its parts."""

    prefill_wait_s: float
    prefill_s: float
    transfer_s: float
    decode_wait_s: float

    @property
    def from_prefill_s(self) -> float:
        """Where the prefill worker hands out the first token itself: what follows is then a gap between the first two tokens."""
        return finite("ttft_s", self.prefill_wait_s + self.prefill_s)

    @property
    def from_decode_s(self) -> float:
        """Where the decode worker hands it out."""
        return finite("ttft_s", self.from_prefill_s + self.transfer_s + self.decode_wait_s)


def disaggregated_ttft(
    arrivals_per_s: float,
    prefill_s: float,
    transfer_s: float,
    decode_s: float,
    *,
    layers: int = 1,
    prefill_workers: int = 1,
    decode_places: int = 1,
    prefill_variation: float = 0.0,
    decode_variation: float = 0.0,
) -> DisaggregatedTtft | None:
    """Mean TTFT of a disaggregated pair: queue of the prefill pool, prefill, exposed transfer, queue of the decode pool (formula F12.7).

    Both waits are :func:`~roofplan.planner.queueing.mean_wait_s` (formulas F13.2, F13.3), the transfer is :func:`exposed_transfer_s`. None
    where one of the pools is unstable.

    Parameters
    ----------
    prefill_s, transfer_s : of one prompt on one worker, and of its cache as a whole
    decode_s : for which a request holds a place of the decode pool, G steps
    layers : by which the transfer is cut while the prefill runs; one sends all of it afterwards
    prefill_workers, decode_places : prompts that are computed, and requests that decode, at a time
    prefill_variation, decode_variation : squared coefficients of variation of both times, 0 for equal requests

    Raises
    ------
    DomainError : for a negative rate, time or variation, a prefill or decode time of zero, or a count outside of one to a million

    Requests are taken to come to the second queue at random, as to the first: exact after exponential prefills (Burke 1956), and somewhat
    too long after equal ones, which come out more evenly. Left out: that a place is held during the transfer, and a shared link.
    """
    transfer = exposed_transfer_s(transfer_s, layers, prefill_s)
    before, after = (
        mean_wait_s(arrivals_per_s, service_s, service_variation=variation, servers=servers)
        for service_s, variation, servers in (
            (prefill_s, prefill_variation, prefill_workers),
            (decode_s, decode_variation, decode_places),
        )
    )
    if before is None or after is None:
        return None
    return DisaggregatedTtft(before, prefill_s, transfer, after)
