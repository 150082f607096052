"""OpenML's tables: download, cache, metadata and loading. Needs the extra ``openml``."""
