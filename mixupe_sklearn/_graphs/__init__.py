"""Graphs on their way into a network: read in the forms that people have, packed, and batched."""
