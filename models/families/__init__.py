"""What the configuration keys of each model family mean: one file per lineage, one small function per architecture."""
