"""The skorch nets: building, training by autograd, and inference."""
