"""Parameters of a training, learning rates, and early stopping."""
