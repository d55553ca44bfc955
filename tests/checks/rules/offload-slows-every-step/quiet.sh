vllm serve meta-llama/Llama-3.1-70B-Instruct \
  --max-model-len 4096 \
  --tensor-parallel-size 4
