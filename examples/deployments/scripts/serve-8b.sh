#!/usr/bin/env bash
# What a shell would be told by its environment stands in the file, or has a default: nothing is run.
set -euo pipefail
export MODEL=meta-llama/Llama-3.1-8B-Instruct

exec vllm serve "$MODEL" \
  --host 0.0.0.0 --port "${PORT:-8000}" \
  --max-model-len 16k \
  --max-num-seqs 24
