"""Programs that measure; nothing here is imported by the package."""
