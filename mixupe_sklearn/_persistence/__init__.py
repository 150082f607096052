"""Saving and loading models without pickle."""
