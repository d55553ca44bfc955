"""Weights whose blocks share a scale, and ranks that would cut through the blocks of the experts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...models.spec import Moe
from ...quantities import show_count
from ..finding import Rule
from ..spelling import flag_for, setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..checked import Checked
    from ..finding import Finding

_REFUSE = ("vllm", "sglang")
_BLOCK = re.compile(r"-block(\d+)$")


def check(checked: Checked) -> Iterator[Finding]:
    """Divide the width of the experts over the ranks that share each of them, and that by the width of a block.

    Source: vllm-project/vllm, vllm/model_executor/layers/quantization/fp8.py, Fp8MoEMethod.create_weights, at
    0071b24bf8fe8c3d1bc3516d0ff8477f07964aaf, and logs of 0.19.0; SGLang says the same (QwenLM/Qwen3-Coder, README of the FP8 checkpoint).
    """
    d, service = checked.deployment, checked.service
    match = _BLOCK.search(d.formats.weights["experts"].name)
    if d.engine.engine not in _REFUSE or match is None:
        return
    block = int(match[1])
    shared = d.layout.tp if d.layout.ep == 1 else max(1, d.layout.tp * d.layout.dp // d.layout.ep)
    ranks = checked.feature("divided_experts", shared)
    widths = [part.intermediate_size for group in d.model.layers for part in group.mlp if isinstance(part, Moe)]
    width = next((one for one in widths if one % (ranks * block)), None)
    if width is None or ranks == 1:
        return
    most = next(ways for ways in range(ranks, 0, -1) if ranks % ways == 0 and (ways == 1 or not width % (ways * block)))
    message = (
        f"{ranks} ranks share each expert, {show_count(width)} wide: {width / ranks:g} for each are no whole blocks of {block} weights, "
        f"which have one scale: {d.engine.engine} refuses to start; {most} ranks would do, or whole experts on each rank (expert "
        "parallelism)"
    )
    switch = flag_for(service, "expert_parallel") if service.kind not in {"deployment", "ray"} else ""
    fix = switch or setting(service, "ep", d.layout.tp * d.layout.dp)
    yield RULE.finding(checked, service.place_of("tp", "devices", "model"), message, fix=fix, ranks=ranks, width=width)


RULE = Rule(
    id="blocks-do-not-divide",
    severity="error",
    title="Ranks cut through blocks of weights",
    why=(
        "Checkpoints in fp8 with a scale for each block of 128 x 128 weights can only be divided between blocks. Experts are narrow, so "
        "that eight ranks often do not divide them: vLLM and SGLang stop while they make the weights. With expert parallelism every rank "
        "has whole experts."
    ),
    fix="Fewer tensor-parallel ranks (with stages or copies on the other devices), or expert parallelism.",
    check=check,
)
