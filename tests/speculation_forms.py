"""Good calls of the closed forms of speculation and of experts, a part of :mod:`closed_forms`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shapes import HH, M8, dense, deploy, number_format, step_model

from roofplan.planner import (
    acceptance,
    draft_counters,
    draft_trees,
    experts,
    lookup_drafts,
    speculative,
    speculative_steps,
)
from roofplan.planner.kv_cache import cache_layout

MODEL = step_model(M8, HH)
DRAFT = step_model(dense(512, 2, 4, 4, 64, 1024, 1000, name="draft"), HH)
CACHE = cache_layout(M8, number_format("bf16"))
P, Q = (0.5, 0.5), (0.2, 0.8)
RATES, HEADS, NODES = (0.8, 0.5), ((0.6, 0.2), (0.5,)), ((0,), (1,), (0, 0))
LOOKUP = lookup_drafts.Lookup(0.5, {1: 0.5, 2: 0.5}, (0.8, 0.5))
DRAFTER = speculative_steps.Drafter(DRAFT)
ROUNDS = draft_trees.chain_rounds(RATES)
TABLE = speculative_steps.rounds_table(MODEL, DRAFTER, ROUNDS, (1, 8), 1024)
COUNTERS = draft_counters.DraftCounters(10, 40, 20)

SPECULATION: dict[Callable[..., Any], dict[str, Any]] = {
    acceptance.acceptance_probability: {"target": P, "draft": Q},
    acceptance.total_variation: {"first": P, "second": Q},
    acceptance.residual_distribution: {"target": P, "draft": Q},
    acceptance.expected_tokens: {"alpha": 0.8, "drafts": 4},
    acceptance.endless_draft_tokens: {"alpha": 0.8},
    acceptance.alpha_from_tokens: {"tokens": 2.0, "drafts": 4},
    acceptance.tokens_of_round: {"rates": RATES},
    acceptance.expected_by_drafts: {"rates": RATES},
    acceptance.cumulative_rates: {"conditional": RATES},
    acceptance.conditional_rates: {"rates": RATES},
    acceptance.independent_rates: {"alpha": 0.8, "drafts": 4},
    acceptance.varying_rates: {"a": 4.0, "b": 1.0, "drafts": 4},
    acceptance.mixed_rates: {"by_workload": (RATES, RATES), "shares": P},
    acceptance.accept_in_top: {"target": P, "draft": Q, "top": 1},
    acceptance.typical_threshold: {"target": P, "threshold": 0.3, "factor": 0.09},
    acceptance.accept_typical: {"target": P, "draft": Q, "threshold": 0.3, "factor": 0.09},
    draft_counters.DraftCounters: {"rounds": 10, "drafted": 40, "accepted": 20},
    draft_counters.rates_from_counts: {"rounds": 10, "accepted": (8, 5)},
    draft_counters.accepted_share: {"tokens": 2.0, "drafts": 4},
    draft_counters.tokens_from_accepted_share: {"share": 0.5, "drafts": 4},
    draft_counters.acceptance_over_workloads: {"workloads": (COUNTERS, COUNTERS)},
    draft_counters.acceptance_over_workloads((COUNTERS,)).tokens_per_round: {"drafts": 4},
    draft_trees.DraftRound: {"nodes": 4, "passes": 2, "expected_tokens": 2.0},
    draft_trees.chain_rounds: {"rates": RATES},
    draft_trees.tree_rounds: {"probabilities": HEADS, "sizes": (0, 2)},
    draft_trees.chain: {"drafts": 3},
    draft_trees.verify_rows: {"nodes": NODES},
    draft_trees.depth_rates: {"nodes": NODES, "probabilities": HEADS},
    draft_trees.expected_tree_tokens: {"nodes": NODES, "probabilities": {(): (0.6, 0.2), (0,): (0.5,)}},
    draft_trees.greedy_tree: {"probabilities": HEADS, "size": 3},
    experts.distinct_experts: {"tokens": 4, "num_experts": 8, "experts_per_token": 2},
    experts.distinct_experts_skewed: {"tokens": 4.0, "probabilities": P},
    experts.distinct_experts_correlated: {
        "sequences": 4,
        "run": 4,
        "num_experts": 8,
        "experts_per_token": 2,
        "repeat": 0.5,
    },
    experts.tokens_for_coverage: {"fraction": 0.5, "num_experts": 8, "experts_per_token": 2},
    experts.rows_per_expert: {"tokens": 4.0, "num_experts": 8, "experts_per_token": 2},
    lookup_drafts.Lookup: {"hit_rate": 0.5, "lengths": {1: 0.5, 2: 0.5}, "rates": RATES},
    lookup_drafts.lookup_rates: {"lookup": LOOKUP},
    lookup_drafts.lookup_speedup: {"lookup": LOOKUP, "verify_ratios": {1: 1.1, 2: 1.2}, "lookup_cost": 0.01},
    lookup_drafts.lookup_speculation: {
        "target": MODEL,
        "lookup": LOOKUP,
        "batch": 8,
        "context": 100.0,
        "overhead_s": 1e-4,
        "grouping": "operators",
    },
    speculative.round_cost: {"drafts": 4, "draft_cost": 0.1, "verify_ratio": 1.0},
    speculative.speedup: {"tokens": 3.0, "drafts": 4, "draft_cost": 0.1, "verify_ratio": 1.0},
    speculative.speedup_of_times: {"tokens": 3.0, "round_s": 0.02, "step_s": 0.01},
    speculative.implied_round_cost: {"tokens": 1.85, "reported_speedup": 1.8},
    speculative.one_more_draft_helps: {"alpha": 0.8, "drafts": 4, "draft_cost": 0.1, "verify_ratio": 1.0},
    speculative.best_drafts: {"rates": RATES, "draft_cost": 0.1, "verify_ratios": (1.0, 1.1)},
    speculative.first_best: {"values": (1.0, 2.0)},
    speculative.break_even_acceptance: {"drafts": 4, "draft_cost": 0.1, "verify_ratio": 1.0},
    speculative.break_even_verify_ratio: {"tokens": 3.0, "drafts": 4, "draft_cost": 0.1},
    speculative.mean_rounds: {"tokens": 3.0, "output": 256},
    speculative.most_drafts_within: {"max_batched_tokens": 100, "batch": 8},
    speculative.speculation_memory: {
        "target": CACHE,
        "drafts": 4,
        "sequences": 8,
        "tokens": 100,
        "draft_weights_bytes": 10**9,
        "draft": CACHE,
    },
    speculative_steps.Drafter: {"model": DRAFT, "relative_cost": 0.1, "one_pass": False, "overhead_s": 1e-4},
    speculative_steps.verify_ratio: {
        "target": MODEL,
        "batch": 8,
        "drafts": 4,
        "context": 100.0,
        "grouping": "operators",
    },
    speculative_steps.relative_draft_cost: {
        "draft": DRAFT,
        "target": MODEL,
        "batch": 8,
        "context": 100.0,
        "grouping": "operators",
    },
    speculative_steps.speculation_table: {
        "target": MODEL,
        "drafter": DRAFTER,
        "rates": RATES,
        "batches": (1, 8),
        "context": 100.0,
        "max_batched_tokens": 100,
        "grouping": "operators",
    },
    speculative_steps.rounds_table: {
        "target": MODEL,
        "drafter": DRAFTER,
        "rounds": ROUNDS,
        "batches": (1, 8),
        "context": 100.0,
        "max_batched_tokens": 100,
        "grouping": "operators",
    },
    speculative_steps.best_by_batch: {"table": TABLE},
    speculative_steps.break_even_batch: {
        "target": MODEL,
        "drafter": DRAFTER,
        "tokens": 2.0,
        "drafts": 4,
        "context": 100.0,
        "max_batched_tokens": 1000,
        "places": 50,
        "most": 100,
        "grouping": "operators",
    },
    speculative_steps.expert_bytes_ratio: {
        "batch": 8,
        "drafts": 4,
        "num_experts": 8,
        "experts_per_token": 2,
        "repeat": 0.5,
    },
    speculative_steps.with_repeated_experts: {"target": MODEL, "repeat": 0.5},
    speculative_steps.early_exit: {"d": deploy(M8, HH), "layers": 16},
}
