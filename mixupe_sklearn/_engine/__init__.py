"""Gradient steps of many networks at once, without autograd."""
