"""A longest sequence, or a workload, beyond what the model was published for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...quantities import show_count
from ..finding import Rule
from ..spelling import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding, Severity


def check(checked: Checked) -> Iterator[Finding]:
    """Compare the longest sequence with the model's own limit, stretched where the file says that positions are."""
    service, model = checked.service, checked.model
    if model.max_context is None:
        return
    limit = int(model.max_context * _stretched(checked))
    for name in ("max_model_len", "prompt"):
        said = service.options.get(name)
        if said is None or not isinstance(said.value, int):
            continue
        output = service.options.get("output")
        more = output.value if name == "prompt" and output is not None and isinstance(output.value, int) else 0
        length = said.value + more
        if length <= limit:
            continue
        # Engines that have such a variable refuse to start without it: vllm-project/vllm PR 7080, sgl-project/sglang PR 1778.
        allowed = None if checked.launcher is None else checked.launcher.filling("long_context_allowed")
        end, refuses = "answers degrade beyond it", False
        if allowed is not None and name == "max_model_len" and not checked.feature("long_context_allowed"):
            end, refuses = f"{checked.engine.engine} refuses to start unless {allowed.name} is set", True
        message = (
            f"{show_count(length)} tokens exceed the {show_count(limit)} that {model.name} was published for: {end}"
        )
        fix = setting(service, name, limit - more) if limit > more else ""
        severity: Severity = "error" if refuses or name == "prompt" else "warning"
        yield RULE.finding(checked, said.place, message, fix=fix, severity=severity, tokens=length, max_context=limit)
        return


def _stretched(checked: Checked) -> float:
    """How much further positions reach than the model was published for."""
    try:
        return min(1024.0, max(1.0, float(checked.feature("context_length_factor", 1))))
    except (TypeError, ValueError):
        return 1.0


RULE = Rule(
    id="context-exceeds-model",
    severity="error",
    title="The longest sequence exceeds the model",
    why=(
        "Positions that a model has never seen give wrong or no numbers. vLLM and SGLang refuse such a length at their start; llama.cpp "
        "only warns. A stretched rotary embedding (rope scaling) moves the limit, and is taken into account where the file says so."
    ),
    fix="State at most the model's own context, or a rope scaling that reaches further.",
    check=check,
)
