"""``roofplan size``: does it fit, how much does it hold, how fast is it, and what binds."""

from __future__ import annotations

from . import options as o


def size(
    model: o.Model,
    hardware: o.Hardware,
    prompt: o.Prompt = "1024",
    output: o.Output = "256",
    concurrency: o.Concurrency = "1",
    devices: o.Devices = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    ep: o.Ep = None,
    weights: o.Weights = None,
    kv: o.Kv = None,
    activations: o.Activations = None,
    engine: o.Engine = "plain",
    memory_utilization: o.MemoryUtilization = None,
    device_memory: o.DeviceMemory = None,
    activation_memory: o.ActivationMemory = None,
    runtime_memory: o.RuntimeMemory = None,
    max_model_len: o.MaxModelLen = None,
    strict: o.Strict = False,
    output_format: o.OutputFormat = o.Format.text,
    explain: o.Explain = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Size a model on devices: does it fit, for how many users, how fast, and what limits it.

    Examples:
    roofplan size llama-3.1-8b h100-sxm --prompt 4096 --output 512 --concurrency 64

    roofplan size llama-3-70b a100-80gb --devices 2 --weights int8 --explain

    roofplan size ./config.json rtx-4090 --format json

    Exit code: 0 it fits, 1 it does not, 2 the input is wrong.
    """
    from .. import api
    from ..errors import ExitCode
    from .render import print_answer

    result = api.size(
        model,
        hardware,
        prompt=prompt,
        output=output,
        concurrency=concurrency,
        devices=devices,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        weights=weights,
        kv=kv,
        activations=activations,
        engine=engine,
        memory_utilization=memory_utilization,
        device_memory=device_memory,
        activation_memory=activation_memory,
        runtime_memory=runtime_memory,
        max_model_len=max_model_len,
        strict=strict,
    )
    print_answer(result, output_format, color, explain=explain)
    return ExitCode.YES if result.fits else ExitCode.NO
