#!/bin/sh
docker run --rm --gpus 1 --ipc host nvcr.io/nvidia/tensorrt-llm/release:1.2.1 \
  trtllm-serve serve nvidia/Llama-3.1-8B-Instruct-FP8 \
    --host 0.0.0.0 --max_batch_size 48 --max_num_tokens 8192 --max_seq_len 8192 \
    --kv_cache_free_gpu_memory_fraction 0.9
