"""Sphinx settings."""

import mixupe_sklearn

project = "mixupe-sklearn"
author = "The mixupe-sklearn developers"
copyright = "2026, the mixupe-sklearn developers"
release = version = mixupe_sklearn.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc", "myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
templates_path = ["_templates"]
exclude_patterns = ["_build"]
html_title = "mixupe-sklearn"
html_theme = "pydata_sphinx_theme"
html_theme_options = {"navigation_with_keys": False}
html_show_sourcelink = False
