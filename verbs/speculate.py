"""``roofplan speculate``: do drafts pay, how many of them, and up to which load; and trials of the acceptance rule."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from . import options as o

_DRAFTER, _ACCEPTANCE = "Drafter (one of the first three)", "Acceptance (one)"
_SPECULATION, _TRIALS = "Rounds", "Trials"


class Method(enum.StrEnum):
    """Drafters that belong to the target."""

    mtp = "mtp"
    medusa = "medusa"
    eagle = "eagle"
    ngram = "ngram"
    layer_skip = "layer-skip"


class Timing(enum.StrEnum):
    """With what rounds are timed."""

    reached = "reached"
    roofline = "roofline"
    two_part = "two-part"


Target = Annotated[
    str | None,
    typer.Argument(
        metavar="TARGET", help="The model that is sped up.", autocompletion=o.complete_model, show_default=False
    ),
]
Device = Annotated[
    str | None,
    typer.Argument(
        metavar="HARDWARE", help="Name, alias, spec YAML, or -.", autocompletion=o.complete_hardware, show_default=False
    ),
]


def _text(name: str, metavar: str, text: str, panel: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel)
    return option


Draft = Annotated[
    str | None,
    typer.Option(
        "--draft",
        metavar="MODEL",
        help="A draft model on the target's devices.",
        autocompletion=o.complete_model,
        rich_help_panel=_DRAFTER,
    ),
]
DraftCost = Annotated[
    str | None, _text("--draft-cost", "C", "Time of a draft in steps of the target (0.1); 0 is free.", _DRAFTER)
]
HowDrafted = Annotated[
    Method | None, typer.Option("--method", help="A drafter that belongs to the target.", rich_help_panel=_DRAFTER)
]
DraftWeights = Annotated[
    str | None, _text("--draft-weights", "FORMAT", "Weight format of the draft model. Default: as published.", _DRAFTER)
]
DraftTp = Annotated[str | None, _text("--draft-tp", "N", "Ranks of the draft model. Default: the target's.", _DRAFTER)]
DraftLayers = Annotated[
    str | None, _text("--draft-layers", "N", "Layers that layer-skip runs. Default: half of them.", _DRAFTER)
]
DraftVocabulary = Annotated[
    str | None, _text("--draft-vocabulary", "TOKENS", "Tokens of the drafter's own head (EAGLE-3: 32000).", _DRAFTER)
]
Overhead = Annotated[
    str | None,
    _text("--overhead", "TIME", "Fixed time of a round (2 ms). Default: what is known of the engine.", _DRAFTER),
]
Acceptance = Annotated[
    str | None, _text("--acceptance", "ALPHA", "Probability that a looked-at draft is kept (0.8).", _ACCEPTANCE)
]
PerPosition = Annotated[
    str | None,
    _text("--per-position", "RATES", "Cumulative rates by position, as vLLM prints them (0.8,0.63,0.48).", _ACCEPTANCE),
]
MeanLength = Annotated[
    str | None,
    _text("--mean-length", "TOKENS", "Mean tokens of a round, the target's own token counted (2.92).", _ACCEPTANCE),
]
AcceptedPerDrafted = Annotated[
    str | None,
    _text("--accepted-per-drafted", "SHARE", "What engines print as acceptance rate, accepted / drafted.", _ACCEPTANCE),
]
MeasuredAt = Annotated[
    str | None,
    _text(
        "--measured-at",
        "K",
        "Drafts a round of a mean length or accepted / drafted. Default: --k, if one.",
        _ACCEPTANCE,
    ),
]
Tree = Annotated[
    str | None,
    _text("--tree", "RANKS", "Probabilities of the ranks at each depth (0.6,0.2;0.5): k counts nodes.", _ACCEPTANCE),
]
HitRate = Annotated[
    str | None, _text("--hit-rate", "SHARE", "Rounds in which ngram finds drafts at all. Default: all.", _ACCEPTANCE)
]
Drafts = Annotated[str | None, _text("--k", "K", "Drafts of a round: 4, 1..12 or 1,2,4. Default: 1..8.", _SPECULATION)]
Concurrency = Annotated[
    str | None, _text("--concurrency", "N", "Requests at a time: 1,8,64. Default: 1.", _SPECULATION)
]
Context = Annotated[
    str | None,
    _text("--context", "TOKENS", "Mean tokens of a sequence, for --prompt and --output. Default: 1152.", _SPECULATION),
]
HowTimed = Annotated[
    Timing,
    typer.Option(
        "--timing",
        help="Steps as reached, of the roofline, or of its linear part and attention (formula F11.6).",
        rich_help_panel=_SPECULATION,
    ),
]
Simulate = Annotated[
    bool, typer.Option("--simulate", help="Try the acceptance rule on random drafts.", rich_help_panel=_TRIALS)
]
TargetProbabilities = Annotated[
    str | None, _text("--target-probabilities", "P", "The target's distribution (0.5,0.3,0.2).", _TRIALS)
]
DraftProbabilities = Annotated[
    str | None, _text("--draft-probabilities", "Q", "The draft's distribution over the same tokens.", _TRIALS)
]
Divergence = Annotated[
    str | None,
    _text("--divergence", "TV", "Total variation of random distributions. Default: 1 - acceptance, or 0.3.", _TRIALS),
]
Vocabulary = Annotated[
    str | None, _text("--vocabulary", "TOKENS", "Tokens of random distributions. Default: 1000.", _TRIALS)
]
Rounds = Annotated[str | None, _text("--rounds", "N", "Rounds that are drawn. Default: 100000.", _TRIALS)]
Seed = Annotated[str | None, _text("--seed", "N", "Seed of the draws. Default: 0.", _TRIALS)]
Seeds = Annotated[
    str | None, _text("--seeds", "N", "Repeat with as many seeds, and test their p-values. Default: 1.", _TRIALS)
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        "--figure",
        metavar="FILE",
        help="Write a picture (.png, .svg, .pdf) or a page for a browser (.html). --figure is the same.",
        rich_help_panel="Output",
    ),
]
Relaxed = Annotated[
    str | None, _text("--relaxed", "RULE", "The relaxed rule beside it: top:N or typical. Default: top:2.", _TRIALS)
]


def speculate(
    target: Target = None,
    hardware: Device = None,
    draft: Draft = None,
    draft_cost: DraftCost = None,
    method: HowDrafted = None,
    draft_weights: DraftWeights = None,
    draft_tp: DraftTp = None,
    draft_layers: DraftLayers = None,
    draft_vocabulary: DraftVocabulary = None,
    overhead: Overhead = None,
    acceptance: Acceptance = None,
    per_position: PerPosition = None,
    mean_length: MeanLength = None,
    accepted_per_drafted: AcceptedPerDrafted = None,
    tree: Tree = None,
    measured_at: MeasuredAt = None,
    hit_rate: HitRate = None,
    k: Drafts = None,
    concurrency: Concurrency = None,
    context: Context = None,
    timing: HowTimed = Timing.reached,
    simulate: Simulate = False,
    target_probabilities: TargetProbabilities = None,
    draft_probabilities: DraftProbabilities = None,
    divergence: Divergence = None,
    vocabulary: Vocabulary = None,
    rounds: Rounds = None,
    seed: Seed = None,
    seeds: Seeds = None,
    relaxed: Relaxed = None,
    prompt: o.Prompt = None,
    output: o.Output = None,
    devices: o.Devices = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    dp: o.Dp = None,
    ep: o.Ep = None,
    weights: o.Weights = None,
    kv: o.Kv = None,
    activations: o.Activations = None,
    engine: o.Engine = None,
    max_num_batched_tokens: o.MaxNumBatchedTokens = None,
    memory_utilization: o.MemoryUtilization = None,
    device_memory: o.DeviceMemory = None,
    out: Out = None,
    size: o.PictureSize = None,
    dark: o.Dark = False,
    force: o.Force = False,
    output_format: o.OutputFormat = o.Format.text,
    explain: o.Explain = False,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Find out whether speculative decoding pays: by drafts of a round and requests at a time, with the best, and where it stops to pay.

    Times are those of decoding alone: --prompt and --output set the context, and the prompts of a server's other requests are not computed
    between the rounds. What is left of the gain with them is what roofplan advise says.

    Examples:
    roofplan speculate llama-3.1-70b h100-sxm --tp 4 --draft llama-3.2-1b --acceptance 0.8 --k 1..12 --concurrency 1,8,64

    roofplan speculate deepseek-v3 b200 --tp 8 --weights experts=nvfp4 --method mtp --mean-length 2.58 --measured-at 2 --k 1..5

    roofplan speculate qwen3-30b-a3b h100-sxm --method eagle --per-position 0.6,0.3,0.1 --engine sglang -o speculation.svg

    roofplan speculate llama-3-8b h100-sxm --draft-cost 0.1 --acceptance 0.8 --context 1024 --timing two-part

    roofplan speculate --simulate --divergence 0.2 --k 4 --seeds 20

    Exit code: 0 drafts pay at some concurrency that was asked for, 1 at none, 2 the input is wrong.
    """
    from ..api.speculation import speculate as call
    from ..errors import ExitCode
    from ..report.answer_files import check_answer_file, write_answer
    from .render import print_answer

    pixels = check_answer_file(out, size, dark=dark, overwrite=force)
    result = call(
        target,
        hardware,
        simulate=simulate,
        draft=draft,
        draft_cost=draft_cost,
        method=None if method is None else method.value,
        draft_weights=draft_weights,
        draft_tp=draft_tp,
        draft_layers=draft_layers,
        draft_vocabulary=draft_vocabulary,
        overhead=overhead,
        acceptance=acceptance,
        per_position=per_position,
        mean_length=mean_length,
        accepted_per_drafted=accepted_per_drafted,
        tree=tree,
        measured_at=measured_at,
        hit_rate=hit_rate,
        k=k,
        concurrency=concurrency,
        context=context,
        timing=None if target is None else timing.value,
        target_probabilities=target_probabilities,
        draft_probabilities=draft_probabilities,
        divergence=divergence,
        vocabulary=vocabulary,
        rounds=rounds,
        seed=seed,
        seeds=seeds,
        relaxed=relaxed,
        prompt=prompt,
        output=output,
        devices=devices,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        weights=weights,
        kv=kv,
        activations=activations,
        engine=engine,
        max_num_batched_tokens=max_num_batched_tokens,
        memory_utilization=memory_utilization,
        device_memory=device_memory,
    )
    if out is not None:
        write_answer(result, out, size=pixels, dark=dark, overwrite=force)
    print_answer(result, output_format, color, explain=explain)
    return ExitCode.YES if result.good else ExitCode.NO
