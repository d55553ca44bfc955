"""What ``roofplan measure`` has beside the machine itself: a Hugging Face folder, and a server that is measured as a client."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o

if TYPE_CHECKING:
    from ..measure.records import Run
    from ..measure.results import MeasureResult

_RUN, _LOAD, _SERVED, _OUTPUT = "Run", "Load", "What is served, for the prediction", "Output"

Quick = Annotated[bool, typer.Option("--quick", help="Fewer samples, in less time.", rich_help_panel=_RUN)]
Json = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the whole run with every sample.", rich_help_panel=_OUTPUT),
]
Samples = Annotated[
    bool, typer.Option("--samples", help="Every sample in what --format json prints.", rich_help_panel=_OUTPUT)
]


def _text(name: str, metavar: str, text: str, panel: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(name, metavar=metavar, help=text, rich_help_panel=panel)
    return option


def is_another_rank() -> bool:
    """Whether ``torchrun`` started this process as a rank that leaves telling and writing to the first one."""
    return os.environ.get("RANK", "0") != "0" and "WORLD_SIZE" in os.environ


def tell(text: str) -> None:
    """Say on standard error what is measured now."""
    from ..errors import show

    if is_another_rank():
        return
    sys.stderr.write(f"measuring {show(text, 200)}\n")
    sys.stderr.flush()


def keep(run: "Run", wanted: Path | None) -> None:
    """Keep what a run has that did not end well, and say where; where it cannot be kept, what ended the run is still the error."""
    from ..errors import RoofplanError, show
    from ..measure.records import save_partial

    if is_another_rank():
        return
    said = f"{len(run.records)} measurements"
    try:
        said += f" are kept in {show(save_partial(run, wanted), 200)}"
    except RoofplanError as error:
        said += f" are lost: {error}"
    sys.stderr.write(f"not finished: {said}\n")


def write(
    result: "MeasureResult", save: Path | None, json: Path | None, *, force: bool, samples: bool
) -> "MeasureResult":
    """Write the files that were asked for; a run whose file cannot be written after all is kept under another name."""
    from ..errors import RoofplanError
    from ..measure.files import write_files

    try:
        return write_files(result, save, json, overwrite=force, samples=samples)
    except RoofplanError:
        keep(result.run, None)
        raise


def hf(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder with config.json and safetensors.")],
    tokens: Annotated[
        str | None, _text("--tokens", "N", "Tokens that are generated. Default: 256, or 32 with --quick.", _RUN)
    ] = None,
    prompt: Annotated[
        str | None, _text("--prompt", "TOKENS", "Tokens of the prompt. Default: 64, or 16 with --quick.", _RUN)
    ] = None,
    formats: Annotated[str | None, _text("--formats", "NAMES", "Some of stored,int8,nf4. Default: all.", _RUN)] = None,
    device: Annotated[
        str | None, _text("--device", "NAME", "cpu, cuda, cuda:1 or mps. Default: a GPU, else the CPU.", _RUN)
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            metavar="HARDWARE",
            help="Device or measured machine to predict with. Default: the catalogue's of this name.",
            autocompletion=o.complete_hardware,
            rich_help_panel=_RUN,
        ),
    ] = None,
    quick: Quick = False,
    json: Json = None,
    samples: Samples = False,
    out: o.PageFile = None,
    force: o.Force = False,
    output_format: o.OutputFormat = o.Format.text,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Measure a model of a local Hugging Face folder: with its cache and without, as stored and in 8 and 4 bits.

    Example: roofplan measure hf ./llama-3.2-1b --tokens 256 --hardware machine.yaml

    Exit code: 0 measured, 2 it cannot be, 130 interrupted.
    """
    from ..errors import ExitCode
    from ..measure.files import check_files
    from ..measure.huggingface import run_hf
    from ..measure.results import MeasureResult
    from .render import check_page, print_answer, write_page

    check_page(out, force=force)
    check_files(None, json, overwrite=force)
    run = run_hf(
        path,
        device=device,
        tokens=tokens,
        prompt=prompt,
        formats=formats,
        hardware=hardware,
        quick=quick,
        tell=tell,
        keep=lambda kept: keep(kept, json),
    )
    result = write(MeasureResult(run), None, json, force=force, samples=samples)
    write_page(result, out, force=force)
    print_answer(result, output_format, color)
    return ExitCode.YES


def server(
    url: Annotated[str, typer.Argument(metavar="URL", help="http://localhost:8000, with or without /v1.")],
    concurrency: Annotated[
        str | None, _text("--concurrency", "N", "Clients of closed loops: 1,4,16 (the default).", _LOAD)
    ] = None,
    rate: Annotated[
        str | None, _text("--rate", "PER_SECOND", "Requests per second that arrive at random: 0.5,2.", _LOAD)
    ] = None,
    prompt: Annotated[
        str | None, _text("--prompt", "TOKENS", "Tokens of a prompt. Default: 512, or 128 with --quick.", _LOAD)
    ] = None,
    output: Annotated[
        str | None, _text("--output", "TOKENS", "Tokens of an output. Default: 128, or 32 with --quick.", _LOAD)
    ] = None,
    requests: Annotated[str | None, _text("--requests", "N", "Requests of each load, at most.", _LOAD)] = None,
    warm_up: Annotated[
        str | None, _text("--warm-up", "N", "Requests before, which are not counted; 0 for none.", _LOAD)
    ] = None,
    most_time: Annotated[
        str | None, _text("--most-time", "TIME", "Time of each load, at most: 60 s (the default).", _LOAD)
    ] = None,
    timeout: Annotated[
        str | None, _text("--timeout", "TIME", "Time of one request, at most: 120 s (the default).", _LOAD)
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of prompts and arrivals.", rich_help_panel=_LOAD)] = 0,
    served_model: Annotated[
        str | None, _text("--served-model", "NAME", "The server's name of the model, where it lists several.", _RUN)
    ] = None,
    api: Annotated[
        str | None, _text("--api", "NAME", "completions or chat. Default: completions where the server has them.", _RUN)
    ] = None,
    api_key_env: Annotated[
        str | None, _text("--api-key-env", "VARIABLE", "The environment variable that holds the API key.", _RUN)
    ] = None,
    quick: Quick = False,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="What is served.",
            autocompletion=o.complete_model,
            rich_help_panel=_SERVED,
        ),
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            metavar="HARDWARE",
            help="On which device, or measured machine.",
            autocompletion=o.complete_hardware,
            rich_help_panel=_SERVED,
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
    memory_utilization: o.MemoryUtilization = None,
    json: Json = None,
    samples: Samples = False,
    out: o.PageFile = None,
    force: o.Force = False,
    output_format: o.OutputFormat = o.Format.text,
    color: o.ColorChoice = o.Color.auto,
) -> int:
    """Measure an OpenAI-compatible server as its clients see it: TTFT, ITL, TPOT and tokens per second by load.

    Examples:
    roofplan measure server http://localhost:8000 --concurrency 1,8,64 --prompt 1024 --output 256

    roofplan measure server http://localhost:8000 --rate 2 --model llama-3.1-8b --hardware h100-sxm --engine vllm

    Exit code: 0 measured, 2 it cannot be, 130 interrupted.
    """
    from ..errors import ExitCode
    from ..measure.files import check_files
    from ..measure.results import MeasureResult
    from ..measure.server import run_server
    from .render import check_page, print_answer, write_page

    check_page(out, force=force)
    check_files(None, json, overwrite=force)
    asked = {
        "devices": devices,
        "tp": tp,
        "pp": pp,
        "dp": dp,
        "ep": ep,
        "weights": weights,
        "kv": kv,
        "activations": activations,
        "engine": engine,
        "max_model_len": max_model_len,
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_num_seqs": max_num_seqs,
        "memory_utilization": memory_utilization,
    }
    kept: list[Run] = []
    try:
        run = run_server(
            url,
            concurrency=concurrency,
            rate=rate,
            prompt=prompt,
            output=output,
            requests=requests,
            warm_up=warm_up,
            most_s=most_time,
            timeout_s=timeout,
            served_model=served_model,
            api=api,
            key_variable=api_key_env,
            seed=seed,
            quick=quick,
            model=model,
            hardware=hardware,
            options={name: value for name, value in asked.items() if value is not None},  # type: ignore[arg-type]  # checked when the deployment is built
            tell=tell,
            keep=kept.append,
        )
    except BaseException:  # also Ctrl-C: what was measured is kept, then raised again
        if kept:
            keep(kept[-1], json)
        raise
    result = write(MeasureResult(run), None, json, force=force, samples=samples)
    write_page(result, out, force=force)
    print_answer(result, output_format, color)
    return ExitCode.YES


def add_to(app: typer.Typer) -> None:
    """Add the commands to the verb."""
    app.command()(hf)
    app.command()(server)
