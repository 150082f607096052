"""From raw columns to numeric features."""
