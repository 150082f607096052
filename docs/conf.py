"""Sphinx settings."""

import pathlib
import sys

import mixupe_sklearn

sys.path.append(str(pathlib.Path(__file__).parent / "_ext"))

project = "mixupe-sklearn"
author = "The mixupe-sklearn developers"
copyright = "2026, the mixupe-sklearn developers"
release = version = mixupe_sklearn.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "mathml",
]
exclude_patterns = ["_build", "examples"]
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

autosummary_generate = True
numpydoc_show_class_members = False
# Only these types become links: the other words in type descriptions are plain English.
numpydoc_xref_param_type = True
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = {
    "ndarray": "numpy.ndarray",
    "Generator": "numpy.random.Generator",
    "RandomState": "numpy.random.RandomState",
    "DataFrame": "pandas.DataFrame",
    "Pipeline": "sklearn.pipeline.Pipeline",
    "ColumnTransformer": "sklearn.compose.ColumnTransformer",
    "Tensor": "torch.Tensor",
    "Module": "torch.nn.Module",
    "optuna.study.Study": "optuna.study.Study",
    "matplotlib.figure.Figure": "matplotlib.figure.Figure",
    "MixupENet": "mixupe_sklearn.MixupENet",
    "MixupESearchCV": "mixupe_sklearn.MixupESearchCV",
    "MixupEPipeline": "mixupe_sklearn.preprocessing.MixupEPipeline",
    "TablePreprocessor": "mixupe_sklearn.preprocessing.TablePreprocessor",
}

# The site builds offline: docs/make_inventories.py writes these small inventories.
_SITES = {
    "python": "https://docs.python.org/3/",
    "numpy": "https://numpy.org/doc/stable/",
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "sklearn": "https://scikit-learn.org/stable/",
    "torch": "https://docs.pytorch.org/docs/stable/",
    "skorch": "https://skorch.readthedocs.io/en/stable/",
    "optuna": "https://optuna.readthedocs.io/en/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "matplotlib": "https://matplotlib.org/stable/",
}
intersphinx_mapping = {
    name: (address, f"inventories/{name}.inv") for name, address in _SITES.items()
}
intersphinx_timeout = 2

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("mixupe_sklearn",),
    "reference_url": {"mixupe_sklearn": None},
    # File numbers set the order. Only files that begin with plot_ are run.
    "within_subsection_order": "FileNameSortKey",
    "filename_pattern": r"/plot_",
    # Show data frames and pipelines, but not the last value of every cell.
    "capture_repr": ("_repr_html_",),
    "image_srcset": ["2x"],
    "remove_config_comments": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
}

html_title = "mixupe-sklearn"
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "navigation_with_keys": False,
    "navbar_center": ["navbar-sections"],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": [], "gallery/index": []},
}
html_sidebars = {"**": ["sidebar-all"], "index": []}
# Without this the theme logs a warning in the browser console.
html_context = {"default_mode": "auto"}
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"
