# offload-slows-every-step, line 4
vllm serve meta-llama/Llama-3.1-70B-Instruct \
  --max-model-len 4096 \
  --cpu-offload-gb 80
