"""``roofplan sweep``: one or two things varied, with the knee, the crossover and the budgets of each curve."""

from typing import Annotated

import typer

from . import options as o

_SWEEP = "Sweep"
Device = Annotated[
    str | None,
    typer.Argument(
        metavar="[HARDWARE]",
        help="Name, alias, spec YAML, or -. Left out with --over hardware=...",
        autocompletion=o.complete_hardware,
        show_default=False,
    ),
]
Over = Annotated[
    list[str] | None,
    typer.Option(
        "--over",
        metavar="AXIS=VALUES",
        help="What is varied, once or twice: batch, context, prompt, output, devices, tp, pp, dp, weights, kv or hardware."
        " Values: 1,2,4 or 1..256 (every one), 8..256:8 (every eighth), 1..256:x2 (doubled), or names (bf16,fp8).",
        rich_help_panel=_SWEEP,
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="TOKENS",
        help="Decode alone with sequences of this length, in place of --prompt and --output.",
        rich_help_panel=_SWEEP,
    ),
]
Tpot = Annotated[
    str | None,
    typer.Option(
        "--tpot", metavar="TIME", help="Most time per output token, for the marks (25 ms).", rich_help_panel=_SWEEP
    ),
]
UsdPerHour = Annotated[
    str | None,
    typer.Option(
        "--usd-per-hour", metavar="USD", help="Price of one device. Default: the catalogue's.", rich_help_panel=_SWEEP
    ),
]


def sweep(
    model: o.Model,
    hardware: Device = None,
    over: Over = None,
    context: Context = None,
    tpot: Tpot = None,
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
    activation_memory: o.ActivationMemory = None,
    runtime_memory: o.RuntimeMemory = None,
    graph_memory: o.GraphMemory = None,
    beside_memory: o.BesideMemory = None,
    out: o.ReportFile = None,
    size: o.PictureSize = None,
    dark: o.Dark = False,
    force: o.Force = False,
    strict: o.Strict = False,
    output_format: o.OutputFormat = o.Format.text,
    explain: o.Explain = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Vary one or two things: memory, TPOT, throughput and cost of each point, and where the knee and the limits are.

    Examples:
    roofplan sweep llama-3.1-8b h100-sxm --over batch=1..256:x2 --prompt 4096 --output 512 --tpot "25 ms"

    roofplan sweep llama-3.1-8b h100-sxm --over batch=1..512 --over context=1024,8192,32768 -o curves.png

    roofplan sweep llama-3.1-8b h100-sxm --over batch=1..256:x2 --context 4096 -o report.html

    roofplan sweep llama-3-70b h100-sxm --over tp=1,2,4,8 --over weights=bf16,fp8 --concurrency 32

    roofplan sweep llama-3.1-8b --over hardware=h100-sxm,h200,mi300x --context 4096 --concurrency 16

    roofplan sweep llama-3.1-8b h100-sxm --over batch=1..1000 --over context=1024..102400:1024 --format csv

    With a context all sequences decode at that length (up to a million points); otherwise requests of a prompt and an output are served.

    Exit code: 0 some point fits, 1 none does, 2 the input is wrong.
    """
    from ..api.sweeps import sweep as sweep_by_name
    from ..errors import ExitCode
    from ..report.answer_files import check_answer_file, write_answer
    from .render import print_answer, progress_on_stderr

    pixels = check_answer_file(out, size, dark=dark, overwrite=force)
    with progress_on_stderr("points") as progress:
        result = sweep_by_name(
            model,
            hardware,
            over=over or [],
            context=context,
            tpot=tpot,
            usd_per_hour=usd_per_hour,
            progress=progress,
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
            activation_memory=activation_memory,
            runtime_memory=runtime_memory,
            graph_memory=graph_memory,
            beside_memory=beside_memory,
            strict=strict,
        )
    if out is not None:
        write_answer(result, out, size=pixels, dark=dark, overwrite=force)
    print_answer(result, output_format, color, explain=explain)
    return ExitCode.YES if result.any_fits else ExitCode.NO
