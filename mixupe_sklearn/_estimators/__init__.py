"""The scikit-learn estimators for tables."""
