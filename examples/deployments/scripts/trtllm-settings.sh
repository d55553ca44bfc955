#!/bin/sh
# What trtllm-serve has no flag for stands in a file of settings beside this one.
docker run --rm --gpus 2 --ipc host nvcr.io/nvidia/tensorrt-llm/release:1.2.1 \
  trtllm-serve nvidia/Llama-3.3-70B-Instruct-FP8 \
    --tp_size 2 --max_batch_size 16 --max_seq_len 16384 --extra_llm_api_options trtllm-settings.yaml
