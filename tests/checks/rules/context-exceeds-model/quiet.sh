vllm serve Qwen/Qwen3-8B \
  --max-model-len 32768 \
  --port 8000
