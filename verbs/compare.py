"""``roofplan compare``: devices, models, formats, settings or whole deployment files side by side, differences first."""

from typing import Annotated

import typer

from . import options as o

_COMPARE = "Compared"
Items = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAME]...",
        help="Models, devices and number formats by name, their files, or deployment files (schema: roofplan/deployment/v1)."
        " Every combination is compared.",
        autocompletion=o.complete_hardware,
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="The model, where only devices or formats are named.",
        autocompletion=o.complete_model,
        rich_help_panel=_COMPARE,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        metavar="HARDWARE",
        help="The device, where only models or formats are named.",
        autocompletion=o.complete_hardware,
        rich_help_panel=_COMPARE,
    ),
]
UsdPerHour = Annotated[
    str | None,
    typer.Option(
        "--usd-per-hour",
        metavar="USD,...",
        help="Price of one device, or of each one in order. Default: the catalogue's.",
        rich_help_panel=_COMPARE,
    ),
]


def compare(
    names: Items = None,
    model: Model = None,
    hardware: Device = None,
    usd_per_hour: UsdPerHour = None,
    prompt: o.Prompt = None,
    output: o.Output = None,
    concurrency: o.Concurrency = None,
    devices: o.Devices = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    ep: o.Ep = None,
    weights: o.Weights = None,
    kv: o.Kv = None,
    activations: o.Activations = None,
    engine: o.Engine = None,
    max_model_len: o.MaxModelLen = None,
    max_num_batched_tokens: o.MaxNumBatchedTokens = None,
    max_num_seqs: o.MaxNumSeqs = None,
    block_size: o.BlockSize = None,
    kv_cache_bytes: o.KvCacheBytes = None,
    eager: o.Eager = False,
    memory_utilization: o.MemoryUtilization = None,
    device_memory: o.DeviceMemory = None,
    out: o.ReportFile = None,
    size: o.PictureSize = None,
    dark: o.Dark = False,
    force: o.Force = False,
    strict: o.Strict = False,
    output_format: o.OutputFormat = o.Format.text,
    explain: o.Explain = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Size several deployments and show what differs by more than 1 %.

    Examples:
    roofplan compare --model llama-3.1-8b h100-sxm h200 mi300x --prompt 4096 --output 512 --concurrency 64

    roofplan compare llama-3.1-8b qwen3-8b rtx-4090 --format markdown

    roofplan compare llama-3-70b h100-sxm --devices 4 --weights bf16,fp8 --kv bf16,fp8 -o formats.png

    roofplan compare llama-3-70b h100-sxm --devices 8 --tp 2,4,8 --concurrency 64

    roofplan compare today.yaml planned.yaml

    Several values, separated by commas: --weights, --kv, --activations, --engine, --devices, --tp, --pp, --dp, --ep, --prompt, --output,
    --concurrency.

    Exit code: 0 some deployment fits, 1 none does, 2 the input is wrong.
    """
    from ..api.comparisons import compare as compare_by_name
    from ..errors import ExitCode
    from ..report.answer_files import check_answer_file, write_answer
    from .render import print_answer

    pixels = check_answer_file(out, size, dark=dark, overwrite=force)
    result = compare_by_name(
        *(names or ()),
        model=model,
        device=hardware,
        usd_per_hour=usd_per_hour,
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
        max_model_len=max_model_len,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        block_size=block_size,
        kv_cache_bytes=kv_cache_bytes,
        eager=eager or None,
        memory_utilization=memory_utilization,
        device_memory=device_memory,
        strict=strict or None,
    )
    if out is not None:
        write_answer(result, out, size=pixels, dark=dark, overwrite=force)
    print_answer(result, output_format, color, explain=explain)
    return ExitCode.YES if result.any_fits else ExitCode.NO
