"""The paper: formulas and the loss of one training step."""
