# blocks-do-not-divide, line 4
# 2,560 weights of an expert over eight ranks: 320 for each are two blocks and a half
vllm serve Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8 --max-model-len 32768 \
  --tensor-parallel-size 8
