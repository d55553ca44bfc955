#!/bin/sh
# The latent of an attention of this kind cannot be divided: a note says that each of eight ranks keeps the whole cache.
docker run --rm --gpus 8 --ipc=host lmsysorg/sglang:v0.5.6 \
  python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V2-Lite-Chat \
    --tp 8 --context-length 16384 --trust-remote-code --revision main
