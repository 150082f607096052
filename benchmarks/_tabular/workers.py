"""Moved to ``benchmarks._harness.runner``; kept until all callers have followed."""

from benchmarks._harness.runner import LostWorkersError

__all__ = ["LostWorkersError"]
