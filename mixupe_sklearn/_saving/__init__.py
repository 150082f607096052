"""What ``mixupe_sklearn.persistence`` is made of."""
