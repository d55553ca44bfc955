vllm serve meta-llama/Llama-3.1-8B-Instruct \
  --no-enable-chunked-prefill \
  --max-model-len 8192 \
  --max-num-batched-tokens 8192
