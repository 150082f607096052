"""The paper: its formulas, by equation number, and the loss of one training step."""
