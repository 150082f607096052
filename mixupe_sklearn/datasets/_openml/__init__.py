"""OpenML's tables: metadata, cache and loading."""
