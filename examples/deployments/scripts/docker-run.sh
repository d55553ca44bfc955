#!/bin/sh
# Two devices, an image with its version, and room for what the ranks exchange.
docker run --rm --gpus 2 --shm-size 8g -p 8000:8000 \
  -v "/srv/huggingface:/root/.cache/huggingface" \
  vllm/vllm-openai:v0.19.0 \
  --model Qwen/Qwen3-32B \
  --tensor-parallel-size 2 \
  --max-model-len 32768 \
  --max-num-seqs 4
