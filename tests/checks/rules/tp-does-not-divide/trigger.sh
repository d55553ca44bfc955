# tp-does-not-divide, line 3
vllm serve Qwen/Qwen2.5-7B-Instruct \
  --tensor-parallel-size 8 \
  --max-model-len 8192
