"""The study behind the defaults of ``MixupEClassifier``: candidates, their rows and tables."""
