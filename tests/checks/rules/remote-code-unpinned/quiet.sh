vllm serve Qwen/Qwen2.5-7B-Instruct \
  --max-model-len 8192 \
  --trust-remote-code \
  --revision a09a35458c702b33eeacc393d103063234e8bc28
