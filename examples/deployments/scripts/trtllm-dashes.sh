#!/bin/sh
# Broken: trtllm-serve spells its flags with underscores, and takes no other.
docker run --rm --gpus 1 nvcr.io/nvidia/tensorrt-llm/release:1.2.1 \
  trtllm-serve nvidia/Llama-3.1-8B-Instruct-FP8 \
    --max-batch-size 64 --max_seq_len 8192
