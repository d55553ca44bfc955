"""Request-level simulation of a serving engine: clients, a scheduler and the times of its steps."""
