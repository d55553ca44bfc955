# context-exceeds-model, line 3
vllm serve Qwen/Qwen3-8B \
  --max-model-len 131072 \
  --port 8000
