"""The real machine against its roofline: microbenchmarks, a reference transformer and experiments, each beside what the planner predicts.

Nothing here needs torch until something is measured; ``pip install 'roofplan[measure]'`` brings it.
"""
