"""Ask aiconfigurator for TTFT and TPOT: rows as JSON lines on stdin, predictions as JSON lines on stdout.

Runs in the virtual environment of aiconfigurator and imports nothing of ours; the version that is wanted is its argument. A row tells
``id``, ``model``, ``precision``, ``gpu``, ``engine``, ``isl``, ``osl``, ``batch`` (requests of one attention replica), ``tp``, ``pp``,
``dp`` and ``ep``, and ``kv`` (format of the cache) where it is not left to the tool. The answer to it has ``id`` with ``ttft_ms``,
``tpot_ms`` and ``note`` (what the tool warns of), or with ``note`` alone: why there is none.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import signal
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

SECONDS_PER_ROW = 60
Asked = dict[str, Any]


def _quantised(gemm: str, moe: str | None = None) -> Asked:
    return {"gemm_quant_mode": gemm} | ({"moe_quant_mode": moe} if moe else {})


# The descriptions within the package that stand for a model in a precision, with what they leave open: nothing can be downloaded. Of
# several settings the first for which there are tables is taken. MiniMax's FP8 weights are in blocks; the tool's own collection of measured
# servers calls them fp8, with which its error is 13 % and not 90.
_LLAMA_8B, _QWEN_32B, _QWEN_397B = "meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3-32B", "Qwen/Qwen3.5-397B-A17B"
_DEEPSEEK, _DEEPSEEK_FP4, _MINIMAX = "deepseek-ai/DeepSeek-R1", "nvidia/DeepSeek-V3.1-NVFP4", "MiniMaxAI/MiniMax-M2.5"
CHECKPOINTS: dict[tuple[str, str], tuple[str, *tuple[Asked, ...]]] = {
    ("meta-llama/Llama-3.1-70B", "fp8"): ("nvidia/Llama-3.1-70B-Instruct-FP8", {}),
    ("meta-llama/Llama-3.1-70B", "fp4"): ("meta-llama/Meta-Llama-3.1-70B", _quantised("nvfp4")),
    ("meta-llama/Llama-3.1-8B-Instruct", ""): (_LLAMA_8B, {}),
    ("meta-llama/Llama-3.1-8B-Instruct", "fp8"): (_LLAMA_8B, _quantised("fp8")),
    ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8"): (_LLAMA_8B, _quantised("fp8")),
    ("Qwen/Qwen3-32B", ""): (_QWEN_32B, {}),
    ("Qwen/Qwen3-32B", "fp8"): (_QWEN_32B, _quantised("fp8")),
    ("nvidia/Qwen3-32B-NVFP4", "fp4"): (_QWEN_32B, _quantised("nvfp4")),
    ("deepseek-ai/DeepSeek-R1", "fp8"): (_DEEPSEEK, {}),
    ("deepseek-ai/DeepSeek-V3", "fp8"): (_DEEPSEEK, {}),
    ("deepseek-ai/DeepSeek-V3", "fp4"): (_DEEPSEEK_FP4, {}),
    ("nvidia/DeepSeek-R1-NVFP4", "fp4"): (_DEEPSEEK_FP4, {}),
    ("nvidia/DeepSeek-V3.1-NVFP4", "fp4"): (_DEEPSEEK_FP4, {}),
    ("MiniMaxAI/MiniMax-M2.5", "fp8"): (_MINIMAX, _quantised("fp8", "fp8"), {}),
    ("MiniMaxAI/MiniMax-M2.5", "fp4"): ("nvidia/MiniMax-M2.5-NVFP4", {}),
    ("moonshotai/Kimi-K2.5", "int4"): ("moonshotai/Kimi-K2.5", {}),
    ("moonshotai/Kimi-K2.5", "fp4"): ("nvidia/Kimi-K2.5-NVFP4", {}),
    ("Qwen/Qwen3.5-397B-A17B", "bf16"): (_QWEN_397B, {}),
    ("Qwen/Qwen3.5-397B-A17B", "fp8"): (_QWEN_397B, _quantised("fp8_block", "fp8_block")),
    ("Qwen/Qwen3.5-397B-A17B", "fp4"): ("nvidia/Qwen3.5-397B-A17B-NVFP4", {}),
    ("zhipuai/GLM-5", "fp8"): ("zai-org/GLM-5-FP8", {}),
    ("zhipuai/GLM-5", "fp4"): ("nvidia/GLM-5-NVFP4", {}),
}
KV_FORMATS = {"bf16": "bfloat16", "fp8": "fp8"}


class TooLongError(Exception):
    """A row took longer than is waited for."""


def questions(row: Asked) -> list[Asked]:
    """What aiconfigurator is asked for a row, the preferred way first."""
    model, *quantisations = CHECKPOINTS[row["model"], row["precision"]]
    asked = {
        "model_path": model,
        "system_name": row["gpu"],
        "backend_name": row["engine"],
        "isl": row["isl"],
        "osl": row["osl"],
        "batch_size": row["batch"],
        "tp_size": row["tp"],
        "pp_size": row["pp"],
        "attention_dp_size": row["dp"],
        "moe_tp_size": row["tp"] * row["dp"] // row["ep"],
        "moe_ep_size": row["ep"],
    }
    if row.get("kv"):
        asked["kvcache_quant_mode"] = KV_FORMATS[row["kv"]]
    return [asked | quantisation for quantisation in quantisations]


def answer(row: Asked) -> Asked:
    """Predict one row, or say why not."""
    from aiconfigurator.cli.api import cli_estimate
    from aiconfigurator.sdk.errors import PerfDataNotAvailableError

    note = ""
    try:
        signal.alarm(SECONDS_PER_ROW)
        for asked in questions(row):
            try:
                found = cli_estimate(**asked, backend_version=_newest(row["gpu"], row["engine"]))
            except PerfDataNotAvailableError as error:
                note = note or _reason(error)
            else:
                warning = "warns that not all requests fit into its cache" if found.kv_cache_warning else ""
                return {"id": row["id"], "ttft_ms": found.ttft, "tpot_ms": found.tpot, "note": warning}
    except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
        note = _reason(error)
    finally:
        signal.alarm(0)
    return {"id": row["id"], "note": note}


@functools.cache
def _newest(gpu: str, engine: str) -> str | None:
    """The engine version that it takes by itself: asked once, since finding it takes more than a second."""
    from aiconfigurator.sdk.perf_database import get_latest_database_version

    newest: str | None = get_latest_database_version(system=gpu, backend=engine)
    return newest


def _reason(error: Exception) -> str:
    """One line, without the names of a row and without paths of this machine."""
    text = re.sub(r"/\S*/", "", " ".join(str(error).split()))
    return (
        "does not fit, by its estimate of memory" if text.startswith("OOM") else f"{type(error).__name__}: {text}"[:140]
    )


def _give_up(*_: object) -> None:
    raise TooLongError(f"no answer within {SECONDS_PER_ROW} s")


def main() -> int:
    """Answer every line."""
    try:
        installed = version("aiconfigurator")
    except PackageNotFoundError:
        installed = "none"
    if installed != sys.argv[1]:
        print(
            f"aiconfigurator: got {installed}, want {sys.argv[1]} (pip install aiconfigurator=={sys.argv[1]})",
            file=sys.stderr,
        )
        return 2
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, _give_up)
    answers, sys.stdout = sys.stdout, sys.stderr  # what the tool itself prints is no answer
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
