# all of its 80 layers
llama-server -hf bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M -c 8192 --n-gpu-layers 99
