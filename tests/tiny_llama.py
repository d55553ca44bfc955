"""A folder with a Llama of random weights, so small that it is made in a moment, and a tokeniser that has one token per word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

VOCABULARY, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, CONTEXT = 256, 64, 128, 2, 4, 2, 1024
HEAD_DIM = HIDDEN // HEADS
# Embedding and head; per layer query, key, value, output, gate, up, down and two norms; the last norm.
PARAMETERS = (
    2 * VOCABULARY * HIDDEN
    + LAYERS * (HIDDEN * HEAD_DIM * (2 * HEADS + 2 * KV_HEADS) + 3 * HIDDEN * INNER + 2 * HIDDEN)
    + HIDDEN
)
LINEAR = LAYERS * (HIDDEN * HEAD_DIM * (2 * HEADS + 2 * KV_HEADS) + 3 * HIDDEN * INNER)
CACHE_PER_TOKEN = LAYERS * 2 * KV_HEADS * HEAD_DIM  # elements


def make(folder: Path, **changed: Any) -> Path:
    """Write the model; without end and start tokens, so that a length can be forced."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(0)
    shape: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
    }
    model = LlamaForCausalLM(LlamaConfig(**shape | changed))
    model.save_pretrained(folder)
    words = {f"w{number}": number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w1"))
    tokenizer.pre_tokenizer = Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w1", pad_token="w0")
    fast.chat_template = "{% for message in messages %}w2 {{ message['content'] }} w3 {% endfor %}"
    fast.save_pretrained(folder)
    return folder
