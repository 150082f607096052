"""MixupESearchCV: hyper-parameter search with Optuna behind scikit-learn's interface."""

import math
import os
import pathlib
import tempfile
import time
import uuid
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from numbers import Real

import numpy as np
from joblib import effective_n_jobs
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.trial import TrialState
from sklearn.base import clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state, indexable
from sklearn.utils.validation import _check_method_params

from mixupe_sklearn._estimators.fit_monitor import with_callbacks
from mixupe_sklearn._search.identity import IDENTITY, identity_of, open_study
from mixupe_sklearn._search.plots import plot_search
from mixupe_sklearn._search.results import (
    error_of,
    extra_columns,
    finished_trials,
    fit_errors_of,
    fits_of,
    in_memory,
    metrics_of,
    why_no_result,
)
from mixupe_sklearn._search.samplers import make_pruner, make_sampler
from mixupe_sklearn._search.search_tasks import SearchTasks
from mixupe_sklearn._search.space import (
    METHOD_PARAMETERS,
    PAPER_GRID,
    Space,
    check_names,
    resolve_space,
)
from mixupe_sklearn._search.storage import TRANSIENT_ERRORS, open_for_search
from mixupe_sklearn._search.trial import Task, final_estimator
from mixupe_sklearn._search.worker import Job, run
from mixupe_sklearn._utils.parameter_rules import Kind, Number, Rule, check_rules
from mixupe_sklearn._utils.warnings import warn_user

__all__ = ["METHOD_PARAMETERS", "PAPER_GRID", "MixupESearchCV", "plot_search"]

# Default number of configurations for a continuous space.
N_TRIALS = 50
RULES: dict[str, Rule] = {
    "n_trials": Number("an integer >= 1 or None", low=1, integer=True, or_none=True),
    "timeout": Number("a number of seconds > 0 or None", open_low=True, or_none=True),
    "n_repeats": Number("an integer >= 1", low=1, integer=True),
    "study_name": Kind("a name", (str,)),
    "trial_params": Kind("a dict of parameters or None", (Mapping,), or_none=True),
    "verbose": Kind("an integer", (int, np.integer)),
}


class MixupESearchCV(BaseSearchCV):
    """Search for the best parameters by cross-validation, with Optuna.

    Use it as scikit-learn's ``GridSearchCV`` or ``RandomizedSearchCV``: ``fit`` tries
    configurations and refits the best one on all samples. In addition it prunes poor trials early,
    averages over seeds, resumes after a crash, shares a study between processes and machines, and
    trains many small networks as one batched model.

    Parameters
    ----------
    estimator : estimator
        A classifier or regressor of this package, or a pipeline that ends in one. Any other
        estimator works too, without pruning by epoch.
    space : {"paper", "default"}, dict or list of dict, default="default"
        The search space. ``"paper"`` is the paper's grid of nine values of ``alpha`` and five of
        ``eta``, as far as the estimator's ``method`` uses them. ``"default"`` has log-uniform
        ranges of ``alpha``, ``eta``, ``lr`` and ``weight_decay``. A dict maps full parameter names
        (``"classifier__alpha"`` in a pipeline) to lists of values, or distributions of Optuna or
        ``scipy.stats``. A list of dicts of lists is a list of grids, as in ``GridSearchCV``.
    n_trials : int or None, default=None
        Number of configurations in the study, including those of earlier calls. None means the
        full grid, or 50 (or as many as ``timeout`` allows).
    timeout : float or None, default=None
        Seconds after which no further trial starts.
    cv : int, splitter or iterable, default=None
        Folds, as in ``GridSearchCV``; None means five.
    scoring : str, callable, list, tuple, dict or None, default=None
        Metric or metrics, as in ``GridSearchCV``; of several, ``refit`` names the one to maximise.
    refit : bool, str or callable, default=True
        Whether, and by which metric, the best configuration is fitted on all samples.
    n_repeats : int, default=1
        Seeds per configuration and fold; the score is the mean. The paper uses five. All
        configurations share the seeds.
    sampler : {"auto", "grid", "tpe", "random"} or optuna sampler, default="auto"
        Which configurations to try. ``"auto"`` enumerates a grid (of up to 1000 points, or one
        that is tried in full), and otherwise uses Optuna's multivariate TPE.
    pruner : str, optuna pruner or None, default="auto"
        When to prune a trial: ``"halving"``, ``"hyperband"`` or ``"median"`` by the validation
        score of each epoch, ``"wilcoxon"`` by the scores of folds and seeds, ``"none"`` never.
        ``"auto"`` means ``"none"`` for a grid and ``"halving"`` otherwise, which prunes none of
        the first five trials.
    storage : str, path, optuna storage or None, default=None
        Where trials are stored: a file name (SQLite), a database URL, or None for memory. A search
        that was killed resumes from there.
    study_name : str, default="mixupe-search"
        Name of the study in the storage.
    n_jobs : int or None, default=None
        Number of processes; any joblib backend works (loky, Dask).
    vectorize : {"auto"} or bool, default="auto"
        Whether networks of equal shape train as one batched model. ``"auto"`` does so where the
        estimator and the data allow, and otherwise fits one by one; ``not_vectorized_because_``
        has the reason. True raises an error instead.
    trial_params : dict or None, default=None
        Parameters of the estimator in trials only. ``{"n_members": 1}`` searches with one network,
        and the refit trains the whole ensemble.
    random_state : int, RandomState instance or None, default=None
        Seed of the sampler, and of the estimators' own seeds if those are None or ``n_repeats``
        is above one.
    verbose : int, default=0
        1 shows a progress bar with the best score and the remaining time.
    error_score : "raise" or float, default=nan
        Score of a failed fit. NaN fails its trial; ``"raise"`` ends the search. With ``n_jobs``
        above one, a trial that kills its worker twice has failed, too.
    return_train_score : bool, default=False
        Whether ``cv_results_`` has the scores on the training part of each fold, too.

    Attributes
    ----------
    best_params_, best_score_, best_index_, best_estimator_, refit_time_
        As in ``GridSearchCV``.
    cv_results_ : dict of ndarrays
        The columns of ``GridSearchCV`` with one row per trial, and ``trial``, ``state``
        (``"complete"``, ``"pruned"`` or ``"failed"``) and ``n_epochs`` (over all fits). Scores of
        incomplete trials are NaN and rank last. Each fold has ``n_repeats`` splits.
    study_ : optuna.study.Study
        The study, for Optuna's plots and for optuna-dashboard. A pickled search has a copy in
        memory.
    seeds_ : list
        The seed of each repeat; None means the estimator's own ``random_state``.
    not_vectorized_because_ : str or None
        Why networks were not trained as one batched model, or None.
    n_splits_ : int
        Folds times repeats.
    scorer_, multimetric_, classes_, n_features_in_, feature_names_in_
        As in ``GridSearchCV``.

    See Also
    --------
    plot_search : Figures of a search.
    make_mixupe_pipeline : From a raw data frame to a classifier.
    sklearn.model_selection.GridSearchCV : The same interface without Optuna.
    optuna.study.Study : Holds the trials.

    Notes
    -----
    Steps of a pipeline before the network are fitted on the training part of each fold only. A
    study belongs to one search: one space, one estimator, one dataset with its weights and folds.
    All are compared by content, and a different search on the study is refused.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from mixupe_sklearn import MixupEClassifier, MixupESearchCV, preset
    >>> X, y = load_iris(return_X_y=True)
    >>> space = {"alpha": [0.1, 1.0], "eta": [0.001, 0.1]}
    >>> classifier = MixupEClassifier(**preset("paper") | {"batch_size": 20, "max_epochs": 10})
    >>> search = MixupESearchCV(classifier, space, cv=3, random_state=0).fit(X, y)
    >>> len(search.cv_results_["params"]), bool(search.best_score_ > 0.8)
    (4, True)
    """

    def __init__(
        self,
        estimator,
        space="default",
        *,
        n_trials=None,
        timeout=None,
        cv=None,
        scoring=None,
        refit=True,
        n_repeats=1,
        sampler="auto",
        pruner="auto",
        storage=None,
        study_name="mixupe-search",
        n_jobs=None,
        vectorize="auto",
        trial_params=None,
        random_state=None,
        verbose=0,
        error_score=np.nan,
        return_train_score=False,
    ):
        self.estimator = estimator
        self.space = space
        self.n_trials = n_trials
        self.timeout = timeout
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.n_repeats = n_repeats
        self.sampler = sampler
        self.pruner = pruner
        self.storage = storage
        self.study_name = study_name
        self.n_jobs = n_jobs
        self.vectorize = vectorize
        self.trial_params = trial_params
        self.random_state = random_state
        self.verbose = verbose
        self.error_score = error_score
        self.return_train_score = return_train_score

    @with_callbacks
    def fit(self, X, y=None, **params):
        """Search, then fit the best configuration on all samples.

        Parameters
        ----------
        X : array-like, data frame or sparse matrix of shape (n_samples, n_features)
            Samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs) or None, default=None
            Targets.
        **params : dict
            Passed on as in ``GridSearchCV``: ``sample_weight`` and other arguments of ``fit``
            are split along the folds, ``groups`` goes to the splitter.

        Returns
        -------
        self : MixupESearchCV
            The fitted search.
        """
        self._check_parameters()
        scorer, metric = self._get_scorers()
        X, y = indexable(X, y)
        params = _check_method_params(X, params=params)
        routed = self._get_routed_params_for_fit(params)
        tasks = SearchTasks(self, X, y, params)
        prefix, core = final_estimator(self.estimator)
        space = resolve_space(self.space, self.estimator, prefix, core)
        is_searched = f"{prefix}random_state" in space.names
        task = Task(
            estimator=self._trial_estimator(),
            X=X,
            y=y,
            folds=self._split(X, y, routed.splitter.split),
            scorer=scorer,
            is_own_scorer=callable(self.scoring) and not hasattr(self.scoring, "_score_func"),
            metric=self._search_metric(metric),
            fit_params=routed.estimator.fit,
            score_params=routed.scorer.score,
            seeds=_draw_seeds(core, is_searched, self.n_repeats, self.random_state),
            error_score=self.error_score,
            return_train_score=bool(self.return_train_score),
        )
        self.n_splits_ = task.n_fits
        self.scorer_ = getattr(scorer, "_scorers", scorer)
        task, trials = self._run(task, space, tasks, metric)
        self._collect(trials, space, metric)
        if self.refit:
            self._refit(task, tasks)
        tasks.end()
        return self

    def _check_parameters(self) -> None:
        check_rules({name: getattr(self, name) for name in RULES}, RULES)
        if self.vectorize not in ("auto", True, False):
            raise ValueError(f"Got vectorize={self.vectorize!r}, but expected 'auto' or a boolean.")
        if self.error_score != "raise" and not isinstance(self.error_score, Real):
            raise ValueError(
                f"Got error_score={self.error_score!r}, but expected 'raise' or a number."
            )

    def _trial_estimator(self):
        """The estimator of the trials, whose parameters may differ from those of the refit."""
        if not self.trial_params:
            return clone(self.estimator)
        check_names(self.trial_params, self.estimator.get_params(deep=True), "trial_params")
        return clone(self.estimator).set_params(**clone(dict(self.trial_params), safe=False))

    def _split(self, X, y, split_params) -> list:
        """The folds; as in GridSearchCV, a splitter must give as many as it announces."""
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        n_splits = cv.get_n_splits(X, y, **split_params)
        folds = list(cv.split(X, y, **split_params))
        if len(folds) != n_splits:
            raise ValueError(
                f"cv.split and cv.get_n_splits return inconsistent results. Expected {n_splits} "
                f"splits, got {len(folds)}"
            )
        if not folds:
            raise ValueError(
                "Got cv without folds, but expected at least one. No fits were performed. Was the "
                "CV iterator empty? A generator is used up by its first search: pass a list."
            )
        return folds

    def _search_metric(self, metric) -> str:
        """Of several metrics the one that ``refit`` names, or the first."""
        if callable(self.scoring) and isinstance(self.refit, str):
            return self.refit
        return metric if isinstance(metric, str) else next(iter(self.scoring))

    def _run(self, task: Task, space: Space, tasks: SearchTasks, metric):
        """Run the study to its end; return the task with its seeds, and the trials."""
        n_jobs = effective_n_jobs(self.n_jobs)
        with ExitStack() as stack:
            storage = self.storage
            is_temporary = storage is None and n_jobs > 1
            if is_temporary:  # processes need a shared storage
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                storage = pathlib.Path(folder) / "search.db"
            storage = stack.enter_context(open_for_search(storage))
            if n_jobs > 1 and isinstance(storage, InMemoryStorage):
                raise ValueError(
                    f"Got a storage in memory with n_jobs={self.n_jobs}, but expected a file or a "
                    f"database, which other processes can open, or None."
                )
            job = self._make_job(task, space, storage, n_jobs)
            identity = {"seeds": list(task.seeds)}
            if self.storage is not None:
                prefix = final_estimator(task.estimator)[0]
                identity = identity_of(task, space, self.scoring, self.random_state, prefix)
            study = open_study(
                storage, self.study_name, identity, sampler=job.sampler, pruner=job.pruner
            )
            self.seeds_ = study.user_attrs[IDENTITY]["seeds"]
            try:
                with tasks.trials(job.n_trials * task.n_fits) as fit_tasks:
                    task = replace(task, seeds=self.seeds_, fit_tasks=fit_tasks)
                    self.not_vectorized_because_ = run(replace(job, task=task), study)
            except KeyboardInterrupt:  # which keeps finished trials
                self.study_ = in_memory(study)
                with suppress(ValueError):  # there is no complete one
                    self._collect(_trials_of(study, space), space, metric)
                raise
            self.study_ = in_memory(study) if is_temporary else study
            if self.verbose > 0 and self.not_vectorized_because_:
                print(f"Networks were fitted one by one: {self.not_vectorized_because_}.")
            return task, _trials_of(study, space)

    def _make_job(self, task: Task, space: Space, storage, n_jobs: int) -> Job:
        """Make the job that all workers share."""
        n_epochs = task.longest_fit(space)
        pruner = make_pruner(self.pruner, space, n_epochs, task.n_fits)
        if n_epochs is None and self.pruner not in (None, "none", "wilcoxon"):
            warn_user(
                f"A {type(final_estimator(task.estimator)[1]).__name__} reports no epochs, so its "
                f"trials cannot be pruned by epoch; pruner='wilcoxon' compares folds instead, "
                f"pruner='none' turns this warning off."
            )
        seed = _generator(self.random_state).randint(2**31 - 1)
        n_trials = self.n_trials or (math.inf if self.timeout or space.is_grid else N_TRIALS)
        return Job(
            task=task,
            space=space,
            storage=storage,
            study_name=self.study_name,
            sampler=make_sampler(self.sampler, space, self.n_trials, seed),
            pruner=pruner,
            n_trials=min(n_trials, space.size),
            n_jobs=n_jobs,
            deadline=math.inf if self.timeout is None else time.time() + self.timeout,
            vectorize=self.vectorize,
            n_epochs=n_epochs,
            token=uuid.uuid4().hex,
            parent=os.getpid(),
            is_shown=self.verbose > 0,
        )

    def _collect(self, trials, space: Space, metric) -> None:
        """Set ``cv_results_`` and the ``best_`` attributes."""
        if not any(trial.state == TrialState.COMPLETE for trial in trials):
            raise ValueError(why_no_result(trials, self.timeout))
        errors = [error for error in map(error_of, trials) if error]
        if errors:
            warn_user(
                f"{len(errors)} of {len(trials)} trials failed, the first with: "
                f"{errors[0].strip().splitlines()[-1]}",
                FitFailedWarning,
            )
        names = metrics_of([t for t in trials if t.state == TrialState.COMPLETE])
        fit_errors = [error for trial in trials for error in fit_errors_of(trial)]
        if len(fit_errors) == len(trials) * self.n_splits_:
            raise ValueError(f"All fits of all {len(trials)} trials failed.\n\n{fit_errors[0]}")
        if fit_errors:
            warn_user(
                f"{len(fit_errors)} fits failed out of a total of {len(trials) * self.n_splits_}, "
                f"and got error_score={self.error_score}, the first with: "
                f"{fit_errors[0].strip().splitlines()[-1]}",
                FitFailedWarning,
            )
        self.multimetric_ = names != ["score"]
        if self.multimetric_ and callable(self.scoring):
            self._check_refit_for_multimetric(names)
            metric = self.refit
        with warnings.catch_warnings():
            # Pruned trials have NaN scores.
            warnings.filterwarnings("ignore", message="One or more of the (test|train) scores")
            results = self._format_results(
                [space.decode(trial.params) for trial in trials],
                self.n_splits_,
                [
                    fit
                    for trial in trials
                    for fit in fits_of(trial, names, self.n_splits_, self.error_score)
                ],
                extra_columns(trials),
            )
        self.cv_results_ = results
        if self.refit or not self.multimetric_:
            self.best_index_ = self._select_best_index(self.refit, metric, results)
            self.best_params_ = results["params"][self.best_index_]
            if not callable(self.refit):
                self.best_score_ = results[f"mean_test_{metric}"][self.best_index_]

    def _refit(self, task: Task, tasks: SearchTasks) -> None:
        """Fit the best configuration, with the first seed, on all samples."""
        task = replace(task, estimator=clone(self.estimator))
        self.best_estimator_ = task.model(self.best_params_, self.seeds_[0])
        start = time.perf_counter()
        arguments = (task.X,) if task.y is None else (task.X, task.y)
        with tasks.refit(self.best_estimator_):
            self.best_estimator_.fit(*arguments, **task.fit_params)
        self.refit_time_ = time.perf_counter() - start
        if hasattr(self.best_estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.best_estimator_.feature_names_in_

    def __getstate__(self):
        # A model must load on a machine without the database.
        state = dict(super().__getstate__())
        if "study_" in state:
            try:
                state["study_"] = in_memory(state["study_"])
            except TRANSIENT_ERRORS:
                del state["study_"]
        if isinstance(self.storage, RDBStorage):
            state["storage"] = self.storage.url
        return state


def _trials_of(study, space: Space) -> list:
    """The finished trials, those of a grid in its order."""
    trials = finished_trials(study)
    return sorted(trials, key=lambda trial: space.place(trial.params)) if space.is_grid else trials


def _draw_seeds(core, is_searched: bool, n_repeats: int, random_state) -> list[int | None]:
    """A seed for each repeat; None keeps the estimator's own, or the one searched over."""
    params = core.get_params() if hasattr(core, "get_params") else {}  # None: no last step yet
    own = params.get("random_state", NotImplemented)
    is_fixed = is_searched or own is NotImplemented
    if is_fixed and n_repeats > 1:
        why = "the space has its random_state" if is_searched else "it has no random_state to vary"
        raise ValueError(
            f"Got n_repeats={n_repeats} for a {type(core).__name__}, but expected 1: {why}."
        )
    if is_fixed or (own is not None and n_repeats == 1):
        return [None]
    source = _generator(own if random_state is None else random_state)
    return [int(seed) for seed in source.randint(2**31 - 1, size=n_repeats)]


def _generator(random_state) -> np.random.RandomState:
    # None means fresh entropy: numpy's global generator is not touched.
    return np.random.RandomState() if random_state is None else check_random_state(random_state)
