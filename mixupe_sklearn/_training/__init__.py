"""How long and how fast to train, and when to stop."""
