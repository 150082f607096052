"""Names of columns, classes and parameters in figures are text, never formulas."""

import io

import matplotlib.pyplot as plt
import numpy as np
import optuna
import pandas as pd
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from sklearn.naive_bayes import GaussianNB
from sklearn.utils import estimator_html_repr

from mixupe_sklearn import MixupEClassifier, plot_search
from mixupe_sklearn._utils.plotting import plain_label
from mixupe_sklearn.diagnostics import plot_decision_boundary

NAMES = [r"$\write18$", r"\input{x}", "_hidden", "<script>alert(1)</script>", "a\x00\x1b$"]


@settings(max_examples=200, deadline=None)
@given(name=st.text(st.one_of(st.sampled_from("$\\_{}^ a\n"), st.characters()), max_size=20))
@example(name=r"$\input{x}$")
@example(name=r"\$a$ \\$b$")
def test_a_label_shows_the_name_and_is_not_parsed(name):
    label = plain_label(name)
    assert label.isprintable()
    assert not label.startswith("_")
    assert "$" not in label.replace(r"\$", "")
    # What matplotlib makes of it when it draws.
    shown, is_formula = Text(text=label)._preprocess_math(label)
    assert not is_formula
    if name.isprintable():
        assert shown.strip() == name.strip()


def test_columns_and_classes_of_any_name_can_be_plotted():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 2)), columns=NAMES[:2])
    y = np.array(NAMES)[np.arange(30) % 5]
    axes = plt.figure().subplots()
    plot_decision_boundary(GaussianNB().fit(X, y), X, y, ax=axes, grid_resolution=5)
    axes.figure.savefig(io.BytesIO(), format="svg")
    told = [text.get_text().strip() for text in axes.get_legend().get_texts()]
    assert sorted(told) == sorted(plain_label(name).strip() for name in set(y))
    assert axes.get_xlabel() == r"\$\write18\$"
    plt.close(axes.figure)


def test_parameters_of_any_name_can_be_plotted():
    study = optuna.create_study(direction="maximize")
    kind = optuna.distributions.FloatDistribution(0.0, 1.0)
    for number in range(6):
        values = {
            name: ((number + 1) * (place + 2)) % 5 / 5 for place, name in enumerate(NAMES[:3])
        }
        study.add_trial(
            optuna.create_trial(
                params=values, distributions=dict.fromkeys(values, kind), value=number / 7
            )
        )
    figure = plot_search(study)
    figure.savefig(io.BytesIO(), format="svg")
    assert figure.axes[0].get_xlabel() == r"\$\write18\$"


def test_the_html_repr_escapes_names():
    name = NAMES[3]
    classifier = MixupEClassifier(class_weight={name: 1.0}, max_epochs=1, n_members=1)
    for made in (classifier, classifier.fit(np.eye(40)[:, :4], [name, "b"] * 20)):
        page = estimator_html_repr(made)
        assert "&lt;script&gt;alert(1)" in page
        assert "<script>alert" not in page
