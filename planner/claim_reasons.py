"""The codes of why a claim, a means or a gain is what it is: stable names, of which reports hold the words.

Reasons that a deployment does not run come from :mod:`.fitting`. Those of drafts and devices are what people met in practice (issues of the
projects named): fixed times beside the verification (ggml-org/llama.cpp 25908), experts that multiply with drafts (ikawrakow/ik_llama.cpp
1630), batches beyond the break-even (vllm-project/vllm 4592), narrow weights multiplied in 16 bits (casper-hansen/AutoAWQ 106), exchanges
that outweigh what the shares save (pytorch-labs/gpt-fast 111), and datasheets whose rates no kernel reaches (ggml-org/llama.cpp 26484).
"""

from __future__ import annotations

from typing import Literal

from .fitting import Reason

Why = Literal[
    # the claim itself
    "above_the_roof",
    "datasheet_is_not_reached",
    "below_what_is_reached",
    "memory_holds_fewer",
    # users
    "figure_is_of_one_user",
    "others_only_add_waiting",
    "memory_holds_fewer_users",
    "cache_of_every_user_is_read",
    "compute_bound",
    # formats
    "no_narrower_format",
    "only_the_weights_shrink",
    "cache_is_read_too",
    "dequantised_to_16_bit_compute",
    "weights_are_a_part_of_memory",
    "no_cache_is_read",
    "cache_is_a_part_of_what_is_read",
    # drafts
    "drafts_come_after_the_first_token",
    "draft_cost_limits_the_gain",
    "verification_is_compute_bound",
    "verification_is_not_free",
    "experts_multiply_with_drafts",
    "acceptance_above_what_is_published",
    "no_more_than_the_tokens_of_a_round",
    "round_costs_more_than_its_tokens",
    "batch_above_break_even",
    "gains_at_no_batch",
    "too_many_drafts_for_their_cost",
    # sparsity, devices, prompts, memory
    "sparser_than_hardware_skips",
    "the_rest_alone_is_too_slow",
    "exchanges_outweigh",
    "exchanges_take_a_part",
    "devices_take_turns",
    "every_replica_reads_the_weights",
    "not_enough_devices",
    "no_link_or_layout_is_known",
    "one_device_does_not_hold_it",
    "one_new_token_is_too_slow",
    "weights_leave_too_little",
    # a cache against none
    "counts_token_passes_not_time",
    "decoding_is_memory_bound",
]
ClaimReason = Why | Reason

CauseCode = Literal[
    "datasheet_is_not_reached",
    "waiting",
    "host_time",
    "exchange_time",
    "dequantised_to_16_bit_compute",
    "prompts_are_computed_too",
]
