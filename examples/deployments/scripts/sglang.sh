#!/bin/sh
docker run --rm --gpus 2 --shm-size 32g --ipc=host lmsysorg/sglang:v0.5.6.post2-cu129 \
  python3 -m sglang.launch_server \
    --model-path Qwen/Qwen3-32B \
    --tp 2 --context-length 32768 --mem-fraction-static 0.85 \
    --max-running-requests 4 --host 0.0.0.0 --port 30000
