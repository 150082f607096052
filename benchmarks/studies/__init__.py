"""Studies behind single decisions: default settings, paired comparisons, search, figures."""
