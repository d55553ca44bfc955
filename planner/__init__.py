"""The analytic engine: pure functions and frozen results. It knows nothing of files, terminals, torch or plots."""
