"""The reference transformer: a plain decoder in torch, built from any model spec with random weights, to measure steps on.

It is written to be looked through, not to be the fastest: products, attention and caches are as the planner counts them, so that what a
machine takes for a step can be held against what is predicted of it.
"""
