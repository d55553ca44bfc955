"""Ask aiconfigurator for TTFT and TPOT: rows as JSON lines on stdin, predictions as JSON lines on stdout.

Runs in the virtual environment of aiconfigurator and imports nothing of ours. A row tells ``id``, ``model``, ``precision``, ``gpu``,
``engine``, ``isl``, ``osl``, ``batch`` (requests of one attention replica), ``tp``, ``pp``, ``dp`` and ``ep``; ``kv`` (format of the
cache) where it is not left to the tool. The answer is ``id`` with ``ttft_ms``, ``tpot_ms`` and ``warning``, or with ``reason``.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import signal
import sys
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
SECONDS_PER_ROW = 60

# The descriptions within the package that stand for a model in a precision, and what they leave open: nothing can be downloaded here.
LLAMA_8B, QWEN_397B = "meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen3.5-397B-A17B"
CHECKPOINTS: dict[tuple[str, str], tuple[str, dict[str, str]]] = {
    ("meta-llama/Llama-3.1-70B", "fp8"): ("nvidia/Llama-3.1-70B-Instruct-FP8", {}),
    ("meta-llama/Llama-3.1-70B", "fp4"): ("meta-llama/Meta-Llama-3.1-70B", {"gemm_quant_mode": "nvfp4"}),
    ("meta-llama/Llama-3.1-8B-Instruct", ""): (LLAMA_8B, {}),
    ("meta-llama/Llama-3.1-8B-Instruct", "fp8"): (LLAMA_8B, {"gemm_quant_mode": "fp8"}),
    ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8"): (LLAMA_8B, {"gemm_quant_mode": "fp8"}),
    ("Qwen/Qwen3-32B", ""): ("Qwen/Qwen3-32B", {}),
    ("Qwen/Qwen3-32B", "fp8"): ("Qwen/Qwen3-32B", {"gemm_quant_mode": "fp8"}),
    ("nvidia/Qwen3-32B-NVFP4", "fp4"): ("Qwen/Qwen3-32B", {"gemm_quant_mode": "nvfp4"}),
    ("deepseek-ai/DeepSeek-R1", "fp8"): ("deepseek-ai/DeepSeek-R1", {}),
    ("deepseek-ai/DeepSeek-V3", "fp8"): ("deepseek-ai/DeepSeek-V3", {}),
    ("deepseek-ai/DeepSeek-V3", "fp4"): ("nvidia/DeepSeek-V3.1-NVFP4", {}),
    ("nvidia/DeepSeek-R1-NVFP4", "fp4"): ("nvidia/DeepSeek-V3.1-NVFP4", {}),
    ("nvidia/DeepSeek-V3.1-NVFP4", "fp4"): ("nvidia/DeepSeek-V3.1-NVFP4", {}),
    ("MiniMaxAI/MiniMax-M2.5", "fp8"): ("MiniMaxAI/MiniMax-M2.5", {}),
    ("MiniMaxAI/MiniMax-M2.5", "fp4"): ("nvidia/MiniMax-M2.5-NVFP4", {}),
    ("moonshotai/Kimi-K2.5", "int4"): ("moonshotai/Kimi-K2.5", {}),
    ("moonshotai/Kimi-K2.5", "fp4"): ("nvidia/Kimi-K2.5-NVFP4", {}),
    ("Qwen/Qwen3.5-397B-A17B", "bf16"): (QWEN_397B, {}),
    ("Qwen/Qwen3.5-397B-A17B", "fp8"): (QWEN_397B, {"gemm_quant_mode": "fp8_block", "moe_quant_mode": "fp8_block"}),
    ("Qwen/Qwen3.5-397B-A17B", "fp4"): ("nvidia/Qwen3.5-397B-A17B-NVFP4", {}),
    ("zhipuai/GLM-5", "fp8"): ("zai-org/GLM-5-FP8", {}),
    ("zhipuai/GLM-5", "fp4"): ("nvidia/GLM-5-NVFP4", {}),
}
KV_FORMATS = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "fp8_e4m3": "fp8"}


class TooLongError(Exception):
    """A row took longer than is waited for."""


def arguments(row: dict[str, Any]) -> dict[str, Any]:
    """What aiconfigurator is asked for a row."""
    model, quantisation = CHECKPOINTS[row["model"], row["precision"]]
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
        **quantisation,
    }
    return asked | ({"kvcache_quant_mode": KV_FORMATS[row["kv"]]} if row.get("kv") else {})


@functools.cache
def newest_version(gpu: str, engine: str) -> str | None:
    """The version that it would take by itself; asked once, since finding it takes more than a second."""
    from aiconfigurator.sdk.perf_database import get_latest_database_version

    version: str | None = get_latest_database_version(system=gpu, backend=engine)
    return version


def answer(row: dict[str, Any], database: str) -> dict[str, Any]:
    """Predict one row, or say why not."""
    from aiconfigurator.cli.api import cli_estimate

    try:
        signal.alarm(SECONDS_PER_ROW)
        version = newest_version(row["gpu"], row["engine"])
        found = cli_estimate(**arguments(row), backend_version=version, database_mode=database)
    except Exception as error:  # noqa: BLE001 - whatever it raises is its answer
        return {"id": row["id"], "reason": reason_of(error)}
    finally:
        signal.alarm(0)
    warning = "more requests than fit its cache" if found.kv_cache_warning else ""
    return {"id": row["id"], "ttft_ms": found.ttft, "tpot_ms": found.tpot, "warning": warning}


def reason_of(error: Exception) -> str:
    """One line without paths of this machine."""
    text = re.sub(r"/\S*/", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text}"[:160]


def give_up(*_: object) -> None:
    """Handle the alarm."""
    raise TooLongError(f"no answer within {SECONDS_PER_ROW} s")


def main() -> int:
    """Answer every line."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGALRM, give_up)
    database = sys.argv[1] if len(sys.argv) > 1 else "SILICON"
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), database)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
