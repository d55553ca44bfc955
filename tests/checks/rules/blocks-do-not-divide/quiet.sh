# each rank holds whole experts
vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 --max-model-len 32768 \
  --tensor-parallel-size 8 --enable-expert-parallel
