#!/bin/sh
# The flags stand in a file beside this one; what is said here holds over it.
docker run --rm --gpus 1 -v "/srv/vllm:/etc/vllm" vllm/vllm-openai:v0.19.0 --config with-config.yaml --max-num-seqs 16
