"""``roofplan size``: does it fit, how much does it hold, how fast is it, and what binds."""

from . import options as o


def size(
    model: o.MaybeModel = None,
    hardware: o.MaybeHardware = None,
    prompt: o.Prompt = None,
    output: o.Output = None,
    concurrency: o.Concurrency = None,
    rate: o.Rate = None,
    devices: o.Devices = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    ep: o.Ep = None,
    cp: o.Cp = None,
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
    offline: o.Offline = False,
    max_loras: o.MaxLoras = None,
    max_lora_rank: o.MaxLoraRank = None,
    memory_utilization: o.MemoryUtilization = None,
    device_memory: o.DeviceMemory = None,
    activation_memory: o.ActivationMemory = None,
    runtime_memory: o.RuntimeMemory = None,
    graph_memory: o.GraphMemory = None,
    beside_memory: o.BesideMemory = None,
    solve: o.Solve = None,
    from_log: o.FromLog = None,
    out: o.SizeFile = None,
    force: o.Force = False,
    strict: o.Strict = False,
    output_format: o.SizeOutputFormat = o.SizeFormat.text,
    explain: o.Explain = False,
    sensitivity: o.Sensitivity = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Size a model on devices: does it fit, for how many users, how fast, and what limits it.

    Examples:
    roofplan size llama-3.1-8b h100-sxm --prompt 4096 --output 512 --concurrency 64

    roofplan size llama-3-70b a100-80gb --devices 2 --weights int8 --explain

    roofplan size llama-3.1-8b h100-sxm --engine vllm@0.19 --max-num-seqs 512 --solve max-context

    roofplan size llama-3.1-8b h100-sxm --engine vllm --rate 20

    roofplan size llama-3.1-8b h100-sxm --concurrency 64 --sensitivity

    roofplan size llama-3.1-8b h100-sxm --concurrency 64 -o report.html

    roofplan size llama-3.1-8b h100-sxm --concurrency 64 -o plan.prom

    roofplan size h100-sxm --from-log serve.log

    roofplan size ./config.json rtx-4090 --format json

    Exit code: 0 it fits (with --solve: there is an answer), 1 it does not, 2 the input is wrong.
    """
    from .. import api
    from ..errors import ExitCode
    from .render import check_page, print_answer, print_metrics, write_metrics, write_page

    page, metrics = (None, out) if out is not None and out.suffix.lower() == ".prom" else (out, None)
    check_page(page, force=force, beside=metrics)
    if from_log is not None and hardware is None:
        model, hardware = None, model  # the log names the model: a single name is the device's
    result = api.size(
        model,
        hardware,
        solve=solve.value if solve else None,
        from_log=from_log,
        sensitivity=sensitivity,
        rate=rate,
        prompt=prompt,
        output=output,
        concurrency=concurrency,
        devices=devices,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        cp=cp,
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
        offline=offline or None,
        max_loras=max_loras,
        max_lora_rank=max_lora_rank,
        memory_utilization=memory_utilization,
        device_memory=device_memory,
        activation_memory=activation_memory,
        runtime_memory=runtime_memory,
        graph_memory=graph_memory,
        beside_memory=beside_memory,
        strict=strict,
    )
    write_page(result, page, force=force)
    write_metrics(result, metrics, force=force)
    if output_format is o.SizeFormat.prometheus:
        print_metrics(result)
    else:
        print_answer(result, o.Format(output_format.value), color, explain=explain)
    found = result.fits if result.solution is None else result.solution.answer is not None
    return ExitCode.YES if found else ExitCode.NO
