"""``roofplan claim``: is this figure possible, and if so by which means."""

from typing import Annotated

import typer

from . import options as o

_CLAIM, _DRAFTS = "Claim", "Drafts"


def claim(
    text: Annotated[
        str,
        typer.Argument(
            metavar="CLAIM",
            help="What is claimed, with its unit: 500 tok/s, 40 tok/s/user, 900 tok/s/gpu, 20 ms/token, 300 ms TTFT,"
            " 360 sequences, or a gain: 2.4x.",
        ),
    ],
    model: o.Model,
    hardware: o.Hardware,
    context: Annotated[
        str | None,
        typer.Option(
            "--context",
            metavar="TOKENS",
            help="Tokens of a sequence while it decodes, of a TTFT those of the prompt. Default: none, which favours the claim.",
            rich_help_panel=_CLAIM,
        ),
    ] = None,
    users: Annotated[
        str | None,
        typer.Option(
            "--users", "--concurrency", metavar="N", help="Users at a time. Default: 1.", rich_help_panel=_CLAIM
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt",
            metavar="TOKENS",
            help="In place of --context: tokens of a prompt, which are computed among the steps.",
            rich_help_panel=_CLAIM,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="TOKENS", help="With --prompt: tokens that follow.", rich_help_panel=_CLAIM),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="MEANS",
            help="Of a gain, where it is said to come from: cache, weights, kv, speculation, batching or devices.",
            rich_help_panel=_CLAIM,
        ),
    ] = None,
    draft_cost: Annotated[
        str | None,
        typer.Option(
            "--draft-cost",
            metavar="STEPS",
            help="One draft step in plain steps of the model. Default: 0.05.",
            rich_help_panel=_DRAFTS,
        ),
    ] = None,
    acceptance: Annotated[
        str | None,
        typer.Option(
            "--acceptance",
            metavar="FRACTION",
            help="Most that drafts may reach (default: 0.9); of a gain, what they reach.",
            rich_help_panel=_DRAFTS,
        ),
    ] = None,
    drafts: Annotated[
        str | None,
        typer.Option(
            "--drafts",
            metavar="N",
            help="Most drafts of a round (default: 16); of a gain, how many there are (default: 4).",
            rich_help_panel=_DRAFTS,
        ),
    ] = None,
    tokens_per_round: Annotated[
        str | None,
        typer.Option(
            "--tokens-per-round",
            metavar="NUMBER",
            help="Of a gain by speculation, in place of --acceptance: tokens of a round as counted.",
            rich_help_panel=_DRAFTS,
        ),
    ] = None,
    round_time: Annotated[
        str | None,
        typer.Option(
            "--round-time",
            metavar="TIME",
            help="Of a gain by speculation: measured time of a round, with --step-time.",
            rich_help_panel=_DRAFTS,
        ),
    ] = None,
    step_time: Annotated[
        str | None,
        typer.Option(
            "--step-time", metavar="TIME", help="Measured time of a step without drafts.", rich_help_panel=_DRAFTS
        ),
    ] = None,
    all_reduce: Annotated[
        str | None,
        typer.Option(
            "--all-reduce",
            metavar="TIME",
            help="Measured time of one all-reduce between the devices. Default: what is known of their link.",
            rich_help_panel=_CLAIM,
        ),
    ] = None,
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
    memory_utilization: o.MemoryUtilization = None,
    device_memory: o.DeviceMemory = None,
    activation_memory: o.ActivationMemory = None,
    runtime_memory: o.RuntimeMemory = None,
    graph_memory: o.GraphMemory = None,
    beside_memory: o.BesideMemory = None,
    out: o.PageFile = None,
    force: o.Force = False,
    strict: o.Strict = False,
    output_format: o.OutputFormat = o.Format.text,
    explain: o.Explain = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Say whether a claimed figure is possible, and if not by itself, by which means.

    Examples:
    roofplan claim "500 tok/s" llama-3.1-8b a100-80gb

    roofplan claim "40 tok/s/user" llama-3-70b h100-sxm --tp 4 --users 64 --context 4096 --explain

    roofplan claim "300 ms TTFT" qwen3-32b h100-sxm --context 8192

    roofplan claim "360 sequences" llama-3-70b h100-sxm --devices 4 --context 4096

    roofplan claim "4x" llama-3.1-8b a100-80gb --by weights --weights int4-g128 --users 256

    roofplan claim "500 tok/s" llama-3.1-8b a100-80gb --context 4096 -o claim.html

    Exit code: 0 plausible or explained, 1 impossible, 2 the input is wrong.
    """
    from ..api.claiming import claim as check
    from ..errors import ExitCode
    from .render import check_page, print_answer, write_page

    check_page(out, force=force)
    result = check(
        text,
        model,
        hardware,
        by=by,
        context=context,
        draft_cost=draft_cost,
        acceptance=acceptance,
        drafts=drafts,
        tokens_per_round=tokens_per_round,
        round_time=round_time,
        step_time=step_time,
        all_reduce=all_reduce,
        prompt=prompt,
        output=output,
        concurrency=users,
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
        memory_utilization=memory_utilization,
        device_memory=device_memory,
        activation_memory=activation_memory,
        runtime_memory=runtime_memory,
        graph_memory=graph_memory,
        beside_memory=beside_memory,
        strict=strict,
    )
    write_page(result, out, force=force)
    print_answer(result, output_format, color, explain=explain)
    return ExitCode.YES if result.is_possible else ExitCode.NO
