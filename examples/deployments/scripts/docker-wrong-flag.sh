#!/bin/sh
# Broken: the flag is called --gpu-memory-utilization, and vLLM stops with a usage message.
docker run --rm --gpus 1 vllm/vllm-openai:v0.19.0 \
  --model meta-llama/Llama-3.1-8B-Instruct \
  --gpu-memory-utilisation 0.9 \
  --max-model-len 8192
