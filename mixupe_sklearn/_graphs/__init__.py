"""Graphs: read from several formats, packed into arrays, and batched."""
