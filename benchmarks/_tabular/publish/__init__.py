"""Finished runs sent to an OpenML server, on request."""

from benchmarks._tabular.publish.sending import publish
from benchmarks._tabular.publish.server import check_publishing

__all__ = ["check_publishing", "publish"]
