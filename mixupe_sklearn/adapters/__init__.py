"""Classifiers for images, audio and graphs: they read inputs, and the core trains on them."""
