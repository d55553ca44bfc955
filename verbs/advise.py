"""``roofplan advise``: the levers of a deployment, ranked by their computed gain."""

from . import options as o


def advise(
    model: o.Model,
    hardware: o.Hardware,
    goal: o.Goal = o.AdviceGoal.throughput,
    prompt: o.Prompt = None,
    output: o.Output = None,
    concurrency: o.Concurrency = None,
    prefix_hit: o.PrefixHit = None,
    acceptance: o.Acceptance = None,
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
    offline: o.Offline = False,
    max_loras: o.MaxLoras = None,
    max_lora_rank: o.MaxLoraRank = None,
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
    """Say which levers pay for this deployment: each with its computed gain, its cost, and why.

    Examples:
    roofplan advise llama-3.1-8b h100-sxm --prompt 4096 --output 512 --concurrency 64

    roofplan advise llama-3-70b h100-sxm --tp 4 --concurrency 8 --goal tpot

    roofplan advise qwen3-32b a100-80gb --engine vllm --prefix-hit 0.8 --goal ttft --explain

    roofplan advise llama-3-70b a100-80gb --goal cost --format csv

    roofplan advise llama-3.1-8b h100-sxm --concurrency 64 -o advice.html

    Exit code: 0 answered, 2 the input is wrong.
    """
    from ..api.advising import advise as advise_by_name
    from ..errors import ExitCode
    from .render import check_page, print_answer, write_page

    check_page(out, force=force)
    advice = advise_by_name(
        model,
        hardware,
        goal=goal.value,
        prefix_hit=0.5 if prefix_hit is None else prefix_hit,
        acceptance=0.7 if acceptance is None else acceptance,
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
    write_page(advice, out, force=force)
    print_answer(advice, output_format, color, explain=explain)
    return ExitCode.YES
