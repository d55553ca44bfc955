#!/bin/sh
# The entry point before `vllm serve`: underscores, short names and a cut name are read as vLLM reads them.
VLLM_USE_V1=1 python3 -m vllm.entrypoints.openai.api_server --model Qwen/Qwen3-30B-A3B -tp 2 --max_model_len 8k --max-num-seqs 16
