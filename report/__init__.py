"""Results as people and programs read them: terminal text, JSON, CSV, Markdown."""
