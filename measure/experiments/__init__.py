"""One experiment per file: ``run(machine, model, limits)`` measures the reference transformer, and gives records beside predictions."""
