# remote-code-unpinned, line 4
vllm serve Qwen/Qwen2.5-7B-Instruct \
  --max-model-len 8192 \
  --trust-remote-code
