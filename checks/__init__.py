"""Checks of deployments in CI: files are read as people write them, rules look at what was read, findings point at the line."""
