#!/bin/sh
# Broken: SGLang has no --max-model-len; the longest sequence is its --context-length.
docker run --rm --gpus 1 lmsysorg/sglang:v0.5.6 python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B \
    --max-model-len 32768
