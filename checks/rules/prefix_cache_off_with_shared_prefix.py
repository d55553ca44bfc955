"""Requests begin alike, and the engine computes that beginning again for each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...engines.profile import parse_version
from ...quantities import show_count, show_rate, show_time
from ..finding import Rule
from ..spelling import switched_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...planner.levers.situation import Lever
    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Size the deployment with a prefix cache that holds the shared tokens (formulas F9.1 to F9.3)."""
    service, shared = checked.service, checked.service.shared_prefix_tokens
    if shared is None or _is_on(checked):
        return
    d = checked.deployment
    common = min(shared.value, d.workload.prompt - 1)
    if common < 1:
        return
    from ...planner.levers.caching import prefix_cache
    from ...planner.levers.situation import PAYS, Choices, Situation

    share = common / d.workload.prompt
    lever: Lever = checked.once(
        f"prefix cache {share}", lambda: next(prefix_cache(Situation.of(d, Choices(prefix_hit=share))))
    )
    gains = lever.gains
    before, after = lever.before, lever.after
    if not lever.figures["cached_tokens"] or before.ttft_s is None or after.ttft_s is None:
        return
    if max(gains.ttft or 1.0, gains.throughput or 1.0) < PAYS:
        return
    later = "engine: vllm@0.8 or later, which caches prefixes by itself"
    fix = later if service.kind == "deployment" else switched_on(service, "prefix_caching")
    message = (
        f"requests have {show_count(shared.value)} tokens in common and the prefix cache is off: with it the first token comes after"
        f" {show_time(after.ttft_s)} instead of {show_time(before.ttft_s)}"
    )
    if before.output_tokens_per_s and after.output_tokens_per_s:
        rates = f"{show_rate(after.output_tokens_per_s)} instead of {show_rate(before.output_tokens_per_s)}"
        message += f", and {rates} tokens/s come out"
    place = service.place_of("prefix_caching") if "prefix_caching" in service.features else shared.place
    yield RULE.finding(checked, place, message, fix=fix, ttft_s=before.ttft_s, ttft_with_cache_s=after.ttft_s)


def _is_on(checked: Checked) -> bool:
    """Whether prefixes are cached: as it is said, else by default."""
    said = checked.feature("prefix_caching")
    if said is not None:
        return said is not False
    version = parse_version(checked.service.engine.value.partition("@")[2])
    switch = None if checked.launcher is None else checked.launcher.filling("prefix_caching")
    if switch is None or not switch.defaults or version is None:
        return True
    default = switch.default_in(version)
    return default is not None and default.value is True  # before it was the default, an engine had to be told


RULE = Rule(
    id="prefix-cache-off-with-shared-prefix",
    severity="warning",
    title="A shared beginning is computed for every request",
    why=(
        "Where requests share a system prompt or documents, a prefix cache computes and stores them once. Without it every "
        "request pays for them in time to first token, in throughput and in memory."
    ),
    fix="Switch the prefix cache on; prompts must begin alike, token by token.",
    check=check,
)
