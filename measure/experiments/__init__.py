"""One experiment per file: ``run(machine, model_spec, limits)`` measures, and gives records with what was predicted."""
