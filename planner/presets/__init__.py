"""Presets: drawings of the closed forms as plain data, one small function each (:mod:`.drawing` holds what they give)."""
