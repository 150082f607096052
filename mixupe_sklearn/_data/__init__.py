"""Arrays and datasets, and the mini-batches made from them."""
