"""Random parameters: each is used, or rejected by a sentence with its name."""

import numpy as np
from fuzz import tiny_classifier, tiny_regressor, tried
from hypothesis import example, given
from hypothesis import strategies as st

from mixupe_sklearn import MixupEClassifier

X = np.random.default_rng(0).normal(size=(8, 2))
Y = np.arange(8) % 2
NAMES = sorted(set(MixupEClassifier().get_params()) - {"verbose", "compile"})

odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 3),
    st.floats(-1, 2),
    st.sampled_from([np.nan, np.inf, -np.inf, 5e-324, 1e-50, 1e308, 10**30, 10**400, -(10**400)]),
    st.sampled_from([np.float32(0.5), np.int8(2), np.bool_(True), np.array([1, 2]), np.array(1.0)]),
    st.text(max_size=3),
    st.sampled_from(["auto", "adam", "mlp", "balanced", "logit", b"adam", object, len, 1j, {1}]),
    st.lists(st.floats(0, 1) | st.text(max_size=1), max_size=3),
    st.lists(st.floats(0, 1), max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=3), st.integers(-1, 2), max_size=2),
)
# A valid integer may still take more time than a test has.
SLOW = {"max_epochs": 50, "min_steps": 50, "n_members": 4}


def is_slow(name, value):
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return name in SLOW and is_whole and SLOW[name] < value < 10**400


@given(st.sampled_from(NAMES), odd_values)
@example("lr", 10**400)
@example("n_threads", 10**12)
@example("eta", 1e308)
@example("eta", 1e-50)
@example("alpha", ())
def test_a_wrong_value_raises_with_its_name(name, value):
    if is_slow(name, value):
        value = SLOW[name]
    model = tiny_classifier(**{name: value})
    found = tried(lambda: model.fit(X, Y), FloatingPointError)
    if found.refusal is None:
        assert np.isfinite(model.predict_proba(X)).all()
        return
    assert not hasattr(model, "net_")
    if found.kind is FloatingPointError:
        assert "lower lr or eta" in found.refusal
    else:
        assert name.removesuffix("_params") in found.refusal, found.refusal


right_values = st.fixed_dictionaries(
    {},
    optional={
        "method": st.sampled_from(["mixupe", "mixup", "erm", "erm+penalty"]),
        "penalty": st.sampled_from(["logit", "directional"]),
        "penalty_order": st.integers(1, 2),
        "alpha": st.floats(0, 5) | st.tuples(st.floats(0, 1), st.floats(0, 5)),
        "beta": st.none() | st.floats(0, 5),
        "eta": st.floats(0, 2) | st.lists(st.floats(0, 1), min_size=1, max_size=3),
        "penalty_fraction": st.floats(0, 1, exclude_min=True),
        "lam_per": st.sampled_from(["batch", "sample"]),
        "mix_at": st.sampled_from(["input", "hidden"]),
        "single_pass": st.booleans(),
        "n_members": st.integers(1, 2),
        "module": st.sampled_from(["mlp", "mlp-gelu"]),
        "optimizer": st.sampled_from(["adam", "adamw", "nadam", "rmsprop", "sgd"]),
        "lr": st.floats(1e-6, 0.1),
        "lr_schedule": st.sampled_from(["constant", "cosine", "onecycle"]),
        "weight_decay": st.floats(0, 0.1),
        "max_epochs": st.integers(1, 2),
        "min_steps": st.integers(0, 6),
        "batch_size": st.integers(1, 20),
        "early_stopping": st.booleans(),
        "validation_fraction": st.floats(0, 1, exclude_min=True, exclude_max=True),
        "n_iter_no_change": st.integers(1, 3),
        "tol": st.floats(0, 1),
    },
)


@given(right_values, st.integers(2, 8), st.integers(1, 8), st.booleans())
@example({"early_stopping": True, "n_members": 2, "validation_fraction": 5e-324}, 8, 2, False)
def test_valid_values_work_together(params, n_rows, n_classes, is_regression):
    y = np.arange(n_rows) % n_classes
    make = tiny_regressor if is_regression else tiny_classifier
    found = tried(lambda: make(**params).fit(X[:n_rows], y), alike=[X, y])
    assert found.refusal is None, found
    again = make(**params)
    tried(lambda: again.fit(X[:n_rows], y))
    name = "predict" if is_regression else "predict_proba"
    first, second = getattr(found.answer, name)(X), getattr(again, name)(X)
    assert np.isfinite(first).all()
    assert np.array_equal(first, second), "equal seeds gave different results"
    assert np.isclose(found.answer.member_weights_.sum(), 1)


@given(right_values, right_values)
@example({}, {"early_stopping": True, "n_members": 2, "validation_fraction": 5e-324})
def test_training_continues_with_changed_parameters_or_raises(first, second):
    model = tiny_classifier(warm_start=True, **first)
    tried(lambda: model.fit(X, Y))
    n_before = len(model.net_.history)
    model.set_params(**second)
    found = tried(lambda: model.fit(X, Y))
    if found.refusal is None:
        assert len(model.net_.history) > n_before
    else:
        assert any(f"new value of {name}" in found.refusal for name in second), found.refusal
        assert len(model.net_.history) == n_before


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("d_hidden", "dropout", "activation", "batch_norm", "bias", "input_scale"),
                *("n_features", "n_outputs"),
            ]
        ),
        odd_values | st.sampled_from([(2,), (3, 2), "relu", 2]),
        max_size=2,
    )
)
@example({"n_features": 7})
@example({"n_features": np.array([2, 2])})
@example({"n_outputs": np.int8(2)})
def test_any_arguments_of_the_module_are_used_or_rejected(module_params):
    found = tried(
        lambda: tiny_classifier(module_params=module_params).fit(X, Y), FloatingPointError
    )
    if found.refusal is None:
        assert np.isfinite(found.answer.predict_proba(X)).all()
    else:
        names = [name for name in module_params if name in found.refusal]
        assert names or "module" in found.refusal, found.refusal


@given(
    st.sampled_from(["adam", "adamw", "nadam", "rmsprop", "sgd"]),
    st.dictionaries(
        st.sampled_from(
            ["betas", "eps", "momentum", "nesterov", "lr", "amsgrad", "foreach", "weight_decay"]
        ),
        odd_values | st.sampled_from([0.5, (0.5, 0.5), (2, 3), True]),
        max_size=2,
    ),
)
@example("adam", {"betas": 7})
@example("adam", {"eps": None})
def test_any_arguments_of_the_optimizer_are_used_or_rejected(optimizer, optimizer_params):
    model = tiny_classifier(optimizer=optimizer, optimizer_params=optimizer_params)
    found = tried(lambda: model.fit(X, Y), FloatingPointError)
    if found.refusal is None:
        assert np.isfinite(model.predict_proba(X)).all()
    elif found.kind is not FloatingPointError:
        names = [name for name in optimizer_params if name in found.refusal]
        assert names or "optimizer" in found.refusal, found.refusal
