"""MixupESearchCV: hyper-parameter search with Optuna behind scikit-learn's interface."""

import pathlib
import tempfile
import time
import warnings
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack
from dataclasses import replace
from numbers import Real

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from optuna.storages import InMemoryStorage, RDBStorage
from optuna.trial import TrialState
from sklearn.base import clone, is_classifier
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import indexable
from sklearn.utils.validation import _check_method_params

from mixupe_sklearn._estimators.fit_monitor import FitTasks, with_callbacks
from mixupe_sklearn._search.fingerprint import fingerprint
from mixupe_sklearn._search.job import Job, draw_seeds, make_job, resolve_space
from mixupe_sklearn._search.plots import plot_search
from mixupe_sklearn._search.progress import progress_bar
from mixupe_sklearn._search.results import (
    error_of,
    extra_columns,
    finished_trials,
    fits_of,
    in_memory,
    metrics_of,
    why_no_result,
)
from mixupe_sklearn._search.space import METHOD_PARAMETERS, PAPER_GRID, Space
from mixupe_sklearn._search.storage import (
    TRANSIENT_ERRORS,
    grace_period_of,
    has_heartbeat,
    open_for_search,
)
from mixupe_sklearn._search.study import IDENTITY, live_trials, open_study, requeue_all
from mixupe_sklearn._search.trial import Task
from mixupe_sklearn._search.worker import work, work_in_process
from mixupe_sklearn._utils.parameter_rules import Kind, Number, Rule, check_rules
from mixupe_sklearn._utils.warnings import warn_user

__all__ = ["METHOD_PARAMETERS", "PAPER_GRID", "MixupESearchCV", "plot_search"]

RULES: dict[str, Rule] = {
    "n_trials": Number("an integer >= 1 or None", low=1, integer=True, or_none=True),
    "timeout": Number("a number of seconds > 0 or None", open_low=True, or_none=True),
    "n_repeats": Number("an integer >= 1", low=1, integer=True),
    "study_name": Kind("a name", (str,)),
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
    space : {"paper", "default"} or dict, default="default"
        The search space. ``"paper"`` is the paper's grid of nine values of ``alpha`` and five of
        ``eta``, as far as the estimator's ``method`` uses them. ``"default"`` has log-uniform
        ranges of ``alpha``, ``eta``, ``lr`` and ``weight_decay``. A dict maps full parameter names
        (``"classifier__alpha"`` in a pipeline) to lists of values or Optuna distributions.
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
    random_state : int, RandomState instance or None, default=None
        Seed of the sampler, and of the estimators' own seeds if those are None or ``n_repeats``
        is above one.
    verbose : int, default=0
        1 shows a progress bar with the best score and the remaining time.
    error_score : "raise" or float, default=nan
        Score of a failed fit. NaN fails its trial; ``"raise"`` ends the search.

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
    study belongs to one search: one space, one estimator, one dataset with its folds.

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

    # BaseSearchCV reads it; GridSearchCV has it as a parameter.
    return_train_score = False

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
        random_state=None,
        verbose=0,
        error_score=np.nan,
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
        self.random_state = random_state
        self.verbose = verbose
        self.error_score = error_score

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
        tasks = FitTasks(self, X, y, params.get("sample_weight"), 0)
        space = resolve_space(self.space, self.estimator)
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        folds = list(cv.split(X, y, **routed.splitter.split))
        task = Task(
            estimator=clone(self.estimator),
            X=X,
            y=y,
            folds=folds,
            scorer=scorer,
            is_own_scorer=callable(self.scoring) and not hasattr(self.scoring, "_score_func"),
            metric=self._search_metric(metric),
            fit_params=routed.estimator.fit,
            score_params=routed.scorer.score,
            seeds=draw_seeds(self.estimator, space, self.n_repeats, self.random_state),
            error_score=self.error_score,
        )
        task, trials = self._run(task, space)
        self.n_splits_ = task.n_fits
        self._collect(trials, space, metric)
        self.scorer_ = getattr(scorer, "_scorers", scorer)
        if self.refit:
            self._refit(task)
        tasks.end()
        return self

    def _check_parameters(self) -> None:
        check_rules(vars(self), RULES)
        if self.vectorize not in ("auto", True, False):
            raise ValueError(f"Got vectorize={self.vectorize!r}, but expected 'auto' or a boolean.")
        if self.error_score != "raise" and not isinstance(self.error_score, Real):
            raise ValueError(
                f"Got error_score={self.error_score!r}, but expected 'raise' or a number."
            )

    def _search_metric(self, metric) -> str:
        """Of several metrics the one that ``refit`` names, or the first."""
        if callable(self.scoring) and isinstance(self.refit, str):
            return self.refit
        return metric if isinstance(metric, str) else next(iter(self.scoring))

    def _run(self, task: Task, space: Space):
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
            job = make_job(self, task, space, storage, n_jobs)
            study, task = self._open_study(job)
            job = replace(job, task=task)
            with progress_bar(study, job.n_trials, is_shown=self.verbose > 0):
                if n_jobs == 1:
                    reasons = [work(job, study)]
                else:
                    reasons = self._run_in_processes(job, study, n_jobs)
            self.not_vectorized_because_ = next(filter(None, reasons), None)
            if self.verbose > 0 and self.not_vectorized_because_:
                print(f"Networks were fitted one by one: {self.not_vectorized_because_}.")
            self.study_ = in_memory(study) if is_temporary else study
            return task, finished_trials(study, space)

    def _run_in_processes(self, job: Job, study, n_jobs: int) -> list[str | None]:
        """Run worker processes; if they end early, queue their trials again."""
        try:
            run = Parallel(n_jobs=n_jobs)
            return run(delayed(work_in_process)(job, number) for number in range(n_jobs))
        except BaseException as error:
            requeue_all(study, job.token)
            if not isinstance(error, BrokenExecutor):
                raise
            hint = "Fit again to resume" if self.storage is not None else "Set storage to resume"
            raise RuntimeError(
                f"A worker process died (killed, or out of memory?). {hint} where it stopped."
            ) from error

    def _open_study(self, job: Job):
        """Create or load the study; return it and the task with the seeds of the study."""
        task = job.task
        identity = {"seeds": list(task.seeds)}
        if self.storage is not None:
            identity = fingerprint(task, job.space, self.scoring, self.random_state)
        study, is_new = open_study(
            job.storage, self.study_name, identity, sampler=job.sampler, pruner=job.pruner
        )
        running = [t.number for t in live_trials(study) if t.state == TrialState.RUNNING]
        if not is_new:
            study.sampler.reseed_rng()  # the first draws of this seed have been tried
        if running and has_heartbeat(job.storage):
            warn_user(
                f"Study {self.study_name!r} has trials of other processes ({len(running)} running "
                f"or dead): this search shares the study with them, and takes over unfinished "
                f"trials {grace_period_of(job.storage):g} seconds after their last heartbeat."
            )
        self.seeds_ = study.user_attrs[IDENTITY]["seeds"]
        return study, replace(task, seeds=self.seeds_)

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
        if not names:
            raise ValueError(f"All fits of all {len(trials)} trials failed.")
        self.multimetric_ = names != ["score"]
        if self.multimetric_ and callable(self.scoring):
            self._check_refit_for_multimetric(names)
            metric = self.refit
        with warnings.catch_warnings():
            # Pruned trials have NaN scores.
            warnings.filterwarnings("ignore", message="One or more of the test scores")
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

    def _refit(self, task: Task) -> None:
        """Fit the best configuration, with the first seed, on all samples."""
        self.best_estimator_ = task.model(self.best_params_, self.seeds_[0])
        start = time.perf_counter()
        arguments = (task.X,) if task.y is None else (task.X, task.y)
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
