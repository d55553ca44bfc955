"""A step takes fewer tokens than vLLM insists on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...errors import RoofplanError
from ...quantities import show_count
from ..finding import Rule
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the tokens of a step with the sequences, and with the longest sequence where prompts are not cut.

    Source: vllm-project/vllm @01230b40128e570a58e54e75f7e55c4d5cd9246d, vllm/config/scheduler.py, verify_max_model_len.
    """
    service, options = checked.service, checked.service.options
    tokens, sequences = options.get("max_num_batched_tokens"), options.get("max_num_seqs")
    if checked.engine.engine != "vllm" or tokens is None or not isinstance(tokens.value, int):
        return
    wanted, what = 0, ""
    if sequences is not None and isinstance(sequences.value, int) and tokens.value < sequences.value:
        wanted, what = sequences.value, f"the {show_count(sequences.value)} sequences that may run"
    if checked.feature("chunked_prefill") is False:
        longest = _longest(checked)
        if longest > max(wanted, tokens.value):
            wanted, what = longest, f"the longest sequence, {show_count(longest)} tokens, whose prompt is not cut"
    if wanted:
        message = f"a step takes {show_count(tokens.value)} tokens, fewer than {what}: vllm refuses to start"
        fix = setting(service, "max_num_batched_tokens", wanted)
        yield RULE.finding(checked, tokens.place, message, fix=fix, max_num_batched_tokens=tokens.value, wanted=wanted)


def _longest(checked: Checked) -> int:
    said, model = checked.service.options.get("max_model_len"), checked.named_model
    if said is not None:
        return said.value if isinstance(said.value, int) else 0
    return 0 if isinstance(model, RoofplanError) else model.max_context or 0


RULE = Rule(
    id="batched-tokens-too-few",
    severity="error",
    title="A step takes too few tokens",
    why=(
        "vLLM needs at least one token of a step for each sequence that may run, and, where chunked prefill is switched off, room for the "
        "longest prompt in one step. It stops at its start where either does not hold."
    ),
    fix="Raise the tokens of a step, lower the sequences or the longest sequence, or let prompts be cut.",
    check=check,
)
