#!/bin/sh
# Broken: 64K is 65,536 tokens for vLLM, and this model was published for 40,960.
docker run --rm --gpus 1 vllm/vllm-openai:v0.19.0 \
  --model Qwen/Qwen3-8B \
  --max-model-len 64K
