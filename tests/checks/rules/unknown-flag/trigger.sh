# unknown-flag, line 3
vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --max-model-length 8192
