"""Diagnostics: the Taylor expansion of the Mixup loss, a monitor, and figures."""
