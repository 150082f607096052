"""Finished runs sent to an OpenML server, on request."""

from benchmarks._tabular.publish.sending import describe, plan_of, publish

__all__ = ["describe", "plan_of", "publish"]
