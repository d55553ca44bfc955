"""``roofplan kv``: bytes of the KV cache per token and per sequence, variants of it, and the format that holds an error budget."""

from typing import Annotated

import typer

from . import options as o

_VARIANTS, _BUDGET, _SERVED = "Variants", "Error budget", "On a device"
Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="Name, Hugging Face id, alias, spec YAML, config.json, a folder with one, or - for standard input."
        " With --error-budget alone it may be left out.",
        autocompletion=o.complete_model,
        show_default=False,
    ),
]
Variant = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="VARIANT",
        help="Compare with the model as it is: mqa, gqa:8, mla:512+64, window:4096, interleave:5:1, sinks:4+1020, h2o:0.2, share:2,"
        " kv=fp8. Several: repeat it, or use commas; + joins changes (gqa:4+kv=fp8).",
        rich_help_panel=_VARIANTS,
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="HARDWARE",
        help="Also say how many sequences fit on a device, and the time per output token.",
        autocompletion=o.complete_hardware,
        rich_help_panel=_SERVED,
    ),
]
Concurrency = Annotated[
    str | None,
    typer.Option(
        "--concurrency", metavar="N", help="Sequences that decode together. Default: 1.", rich_help_panel=_SERVED
    ),
]
ErrorBudget = Annotated[
    str | None,
    typer.Option(
        "--error-budget",
        metavar="METRIC=LIMIT",
        help="Choose the cheapest format that holds limits (kl=0.01,cosine=0.99) of kl, tv, score, key, value, output, cosine.",
        rich_help_panel=_BUDGET,
    ),
]
Tensors = Annotated[
    str | None,
    typer.Option(
        "--tensors",
        metavar="FILE",
        help="Queries, keys and values to measure it on: .npz or .json. Default: synthetic ones with outlier channels.",
        rich_help_panel=_BUDGET,
    ),
]


def kv(
    model: Model = None,
    context: o.Context = None,
    kv_format: o.Kv = None,
    tp: o.Tp = None,
    variant: Variant = None,
    on: On = None,
    concurrency: Concurrency = None,
    weights: o.Weights = None,
    engine: o.Engine = None,
    memory_utilization: o.MemoryUtilization = None,
    device_memory: o.DeviceMemory = None,
    error_budget: ErrorBudget = None,
    tensors: Tensors = None,
    out: o.PageFile = None,
    force: o.Force = False,
    strict: o.Strict = False,
    output_format: o.OutputFormat = o.Format.text,
    explain: o.Explain = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Count the KV cache of a model: per token, per sequence, by layer group and by context; compare variants; keep an error budget.

    Examples:
    roofplan kv llama-3.1-8b

    roofplan kv gemma-3-27b --context 32768 --explain

    roofplan kv deepseek-v3 --kv fp8 --tp 8 --format json

    roofplan kv llama-3.1-8b --variant mqa,mla:512+64 --variant window:4096 --on h100-sxm --concurrency 32

    roofplan kv llama-3.1-8b --error-budget kl=0.01,cosine=0.99

    roofplan kv --error-budget kl=0.01 --tensors layer12.npz

    roofplan kv gemma-3-27b --context 32768 -o cache.html

    Exit code: 0 answered, 1 no format holds the error budget, 2 the input is wrong.
    """
    from .. import api
    from ..errors import DomainError, ExitCode
    from .render import check_page, print_answer, write_page

    check_page(out, force=force)
    if model is not None:
        result = api.kv(
            model,
            context=context,
            kv=kv_format,
            tp=tp,
            variants=variant or (),
            on=on,
            concurrency=concurrency,
            weights=weights,
            engine=engine,
            memory_utilization=memory_utilization,
            device_memory=device_memory,
            error_budget=error_budget,
            tensors=tensors,
            strict=strict,
        )
        write_page(result, out, force=force)
        print_answer(result, output_format, color, explain=explain)
        return ExitCode.YES if result.good else ExitCode.NO
    of_models = (context, kv_format, tp, variant, on, concurrency, weights, engine, memory_utilization, device_memory)
    if error_budget is None or any(option is not None for option in of_models):
        hint = "only --error-budget and --tensors go without a model"
        raise DomainError("MODEL", got="nothing", wanted="a name or a path", hint=hint)
    found = api.error_budget(error_budget, tensors=tensors)
    write_page(found, out, force=force)
    print_answer(found, output_format, color, explain=explain)
    return ExitCode.YES if found.good else ExitCode.NO
