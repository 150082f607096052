"""The owner of a study: one search, described by the content of everything that its scores need."""

import json
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import optuna
import sqlalchemy
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.trial import TrialState

from mixupe_sklearn._search.digest import FREE, columns_of, digest, name_of, parameters_of
from mixupe_sklearn._search.space import PLAIN
from mixupe_sklearn._search.storage import grace_period, has_heartbeat, quiet
from mixupe_sklearn._search.study import live_trials
from mixupe_sklearn._utils.warnings import warn_user

# Key of the user attribute of a study.
IDENTITY = "mixupe_search"
# Seconds that a search waits for the owner of a study that is just being created.
PATIENCE = 5.0
# A longer text, or a frame with more columns, is described by its hash.
LONG_TEXT, MANY_COLUMNS = 80, 200
# Begins a hash within a description.
HASH = "#"
_IN_MEMORY = threading.Lock()
_ATTRIBUTES = sqlalchemy.table(
    "study_user_attributes", *map(sqlalchemy.column, ("study_id", "key", "value_json"))
)


def open_study(storage: Any, name: str, identity: dict[str, Any], **sampler_and_pruner: Any) -> Any:
    """Create the study, or load it if this search owns it."""
    with quiet():
        try:
            study = optuna.create_study(
                storage=storage, study_name=name, direction="maximize", **sampler_and_pruner
            )
            is_new = True
        except optuna.exceptions.DuplicatedStudyError:
            study = optuna.load_study(study_name=name, storage=storage, **sampler_and_pruner)
            is_new = False
    # Trials first: the owner is recorded before its first trial.
    if study.get_trials(deepcopy=False) and IDENTITY not in study.user_attrs:
        raise ValueError(
            f"Got study_name={name!r}, which holds trials that no MixupESearchCV created; "
            f"give another study_name."
        )
    _check_identity(study, _record_first(storage, study, identity, is_new), identity)
    if is_new:
        return study
    study.sampler.reseed_rng()  # the first draws of this seed have been tried
    n_running = sum(trial.state == TrialState.RUNNING for trial in live_trials(study))
    if n_running and has_heartbeat(storage):
        warn_user(
            f"Study {name!r} has trials of other processes ({n_running} running or dead): this "
            f"search shares the study with them, and takes over unfinished trials "
            f"{grace_period(storage):g} seconds after their last heartbeat."
        )
    return study


def _record_first(
    storage: Any, study: Any, identity: dict[str, Any], is_new: bool
) -> dict[str, Any]:
    """Record the owner of a study unless there is one; return the owner.

    Of several searches at the same moment one wins. In a database that is the first to insert the
    row, which is unique. In other storages it is the one that created the study.
    """
    if IDENTITY not in study.user_attrs:
        if isinstance(storage, RDBStorage):
            row = {
                "study_id": study._study_id,
                "key": IDENTITY,
                "value_json": json.dumps(identity),
            }
            with suppress(sqlalchemy.exc.IntegrityError), storage.engine.begin() as connection:
                connection.execute(sqlalchemy.insert(_ATTRIBUTES).values(row))
        elif isinstance(storage, InMemoryStorage):
            with _IN_MEMORY:
                if IDENTITY not in study.user_attrs:
                    study.set_user_attr(IDENTITY, identity)
        elif is_new:
            study.set_user_attr(IDENTITY, identity)
    end = time.monotonic() + PATIENCE
    while IDENTITY not in study.user_attrs:
        if time.monotonic() > end:
            raise ValueError(
                f"Got study_name={study.study_name!r}, whose search ended before it recorded "
                f"itself, but expected a new study; give another study_name."
            )
        time.sleep(0.2)
    return study.user_attrs[IDENTITY]


def _check_identity(study: Any, kept: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    for part, mine in identity.items():
        theirs = kept.get(part)
        # The study's seeds are used, and random_state=None agrees with any.
        is_free = part == "seeds" and len(theirs or []) == len(mine)
        if is_free or (part == "random_state" and mine is None) or theirs == mine:
            continue
        raise ValueError(
            f"Got study_name={study.study_name!r}, which was created by a search with another "
            f"{part} ({_difference(theirs, mine)}); give another study_name or storage"
            + (" (a splitter that shuffles needs a random_state)." if part == "cv" else ".")
        )


def _difference(theirs: Any, mine: Any) -> str:
    if not (isinstance(theirs, dict) and isinstance(mine, dict)):
        there, here = _without_hash(theirs), _without_hash(mine)
        return f"{there!r} there, {here!r} here" if there != here else "its content differs"
    names = [name for name in {**mine, **theirs} if theirs.get(name) != mine.get(name)]
    found = []
    for name in names[:2]:
        there, here = _without_hash(theirs.get(name)), _without_hash(mine.get(name))
        shown = f"{name} is {there!r} there and {here!r} here"
        found.append(shown if there != here else f"{name} differs")
    more = f"; and {len(names) - 2} more" if len(names) > 2 else ""
    return "; ".join(found) + more


def _without_hash(text: Any) -> Any:
    return text.split(HASH)[0].strip() if isinstance(text, str) else text


def identity_of(
    task: Any, space: Any, scoring: Any, random_state: Any, prefix: str
) -> dict[str, Any]:
    """Describe a search by plain values, part by part, to be stored with its study.

    ``prefix`` is that of the parameters of the last step, whose own seed does not count if the
    search gives it others.
    """
    is_number = isinstance(random_state, (int, np.integer))
    free = set(space.names)
    if list(task.seeds) != [None]:
        free.add(f"{prefix}random_state")
    kinds = {name: str(kind) for name, kind in sorted(space.distributions.items())}
    for name, values in {**space.named, **space.quantiles}.items():
        kinds[name] += f" {_hash(values)}"
    if space.points:
        kinds = {"points": _hash(space.points), "parameters": ", ".join(space.names)}
    return {
        "space": kinds,
        "estimator": describe_estimator(task.estimator, without=free),
        "X": describe_data(task.X),
        "y": describe_data(task.y),
        "cv": {"number of folds": len(task.folds), "samples of a fold": _hash(task.folds)},
        "scoring": _describe_scoring(scoring),
        "metric": task.metric,
        "error_score": str(task.error_score),
        "return_train_score": task.return_train_score,
        "fit_params": {name: _hash(value) for name, value in sorted(task.fit_params.items())},
        "score_params": {name: _hash(value) for name, value in sorted(task.score_params.items())},
        "n_repeats": len(task.seeds),
        "random_state": int(random_state) if is_number else None,
        "seeds": list(task.seeds),
    }


def describe_data(data: Any) -> dict[str, Any]:
    """Type, shape, dtype and hash of samples or targets; of a frame, of each column."""
    shape = getattr(data, "shape", None) or (len(data) if hasattr(data, "__len__") else "",)
    found = {"type": type(data).__name__, "shape": " x ".join(map(str, shape))}
    if not (hasattr(data, "iter_columns") or hasattr(data, "columns")):
        dtype = getattr(data, "dtype", None)
        return found | ({} if dtype is None else {"dtype": str(dtype)}) | {"content": _hash(data)}
    columns = columns_of(data)
    if len(columns) > MANY_COLUMNS:
        return found | {"content": _hash(data)}
    found["order of the columns"] = _hash([name for name, _ in columns])
    for number, (name, column) in enumerate(columns):
        name = f"column {name!r}"
        name += f" number {number}" if name in found else ""
        found[name] = f"{column.dtype} {_hash(column)}"
    return found


def describe_estimator(estimator: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Each parameter by its full name, with those of the steps; of a step itself, its class."""
    params = estimator.get_params(deep=True)
    found = {"class": name_of(type(estimator))}
    for name, value in sorted(params.items()):
        if name in without or name.split("__")[-1] in FREE:
            continue
        if any(other.startswith(f"{name}__") for other in params):
            found[name] = name_of(type(value))
        elif isinstance(value, list) and all(_is_step(item, name, params) for item in value):
            found[name] = _describe([[item[0], *item[2:]] for item in value])
        else:
            found[name] = _describe(value)
    # What is no parameter, such as the weights of a fitted estimator and requests of metadata.
    own = {name: value for name, value in parameters_of(estimator).items() if name not in params}
    return found | ({"other attributes": _hash(own)} if own else {})


def _is_step(item: Any, name: str, params: Mapping[str, Any]) -> bool:
    """Whether an item of a list is a named estimator, whose parameters are listed on their own."""
    prefix = f"{name.rpartition('__')[0]}__" if "__" in name else ""
    is_named = isinstance(item, tuple) and len(item) > 1 and isinstance(item[0], str)
    return is_named and params.get(prefix + item[0], NotImplemented) is item[1]


def _describe(value: Any) -> Any:
    """A value that is stored as it is, or its type and hash."""
    if value != value if isinstance(value, float) else False:
        return "nan"  # which differs from itself
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str) and len(value) > LONG_TEXT:
        return f"{value[:LONG_TEXT]} {_hash(value)}"
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple, dict)) and _is_plain(value) and len(str(value)) < LONG_TEXT:
        return str(value)
    named = callable(value) and hasattr(value, "__qualname__")
    return f"{name_of(value) if named else type(value).__qualname__} {_hash(value)}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain, value))
    return type(value) in PLAIN


def _describe_scoring(scoring: Any) -> Any:
    if isinstance(scoring, (list, tuple, set)):
        return sorted(map(str, scoring))
    if isinstance(scoring, Mapping):
        return {name: _describe_scoring(one) for name, one in sorted(scoring.items())}
    # The repr of scikit-learn's scorers describes them.
    is_scorer = hasattr(scoring, "_score_func")
    return f"{scoring!r} {_hash(scoring)}" if is_scorer else _describe(scoring)


def _hash(value: Any) -> str:
    return HASH + digest(value)
