#!/bin/sh
# Broken in the file beside it: a context that the model was not made for.
docker run --rm --gpus 1 vllm/vllm-openai:v0.19.0 --model Qwen/Qwen3-8B --config with-wrong-config.yaml
