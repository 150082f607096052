"""Slow checks that print a table: faults and load."""
