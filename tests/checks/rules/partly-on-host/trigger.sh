# partly-on-host, line 2
llama-server -hf bartowski/Llama-3.3-70B-Instruct-GGUF:Q4_K_M -c 8192 --n-gpu-layers 40
