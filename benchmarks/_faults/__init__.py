"""The parts of the fault table: what is at work, what happens to it, and what is counted."""
