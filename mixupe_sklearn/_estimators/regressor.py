"""MixupERegressor: the same method for numbers, through the squared-error form of the loss."""

from sklearn.base import RegressorMixin

from mixupe_sklearn._estimators.base import BaseMixupE, all_or_nothing
from mixupe_sklearn._estimators.fit_monitor import with_callbacks
from mixupe_sklearn._estimators.targets import NumericTargets
from mixupe_sklearn._net.net import MixupENetRegressor


class MixupERegressor(NumericTargets, RegressorMixin, BaseMixupE):
    """Neural network regressor for tables, trained with MixupE.

    The squared error has the form that the paper's derivation asks for, ``h(f) - y'f`` with
    ``h(f) = |f|^2 / 2``, so the method carries over as it is. Targets are standardised inside.

    Parameters
    ----------
    method : {"mixupe", "mixup", "erm", "erm+penalty"}, default="mixupe"
        The training method: the paper's MixupE, plain Mixup, no mixing, or the penalty alone.
    penalty : {"logit", "directional"}, default="logit"
        The paper's fast penalty from the logits, or its exact form, the derivative of the loss
        along the direction to the training mean.
    penalty_order : {1, 2}, default=1
        2 adds the second-order directional term, exact; experimental, and slower. See
        :class:`MixupELoss`.
    alpha : float or sequence of float, default=0.2
        Parameter of the Beta distribution that mixing weights are drawn from, *not* an L2 penalty
        as in ``MLPClassifier`` (that is ``weight_decay`` here). 0 means no mixing; larger values
        mix more. Members take several values in turn, and form a team for each.
    beta : float or None, default=None
        Second parameter of the Beta distribution; None means ``alpha``.
    eta : float or sequence of float, default=0.01
        Weight of the penalty; 0 is plain Mixup, exactly. Several values are taken in turn.
    penalty_fraction : float, default=1.0
        Share of each batch's rows, drawn at random, that the penalty is measured on: an unbiased
        estimate at a fraction of its extra time.
    lam_per : {"batch", "sample"}, default="batch"
        One mixing weight for each batch (the paper) or for each sample.
    mix_at : {"input", "hidden"}, default="input"
        Where rows are mixed; ``"hidden"`` is Manifold Mixup, after a hidden layer drawn for each
        batch.
    single_pass : bool, default=True
        Whether mixed and clean rows share one forward pass. It matters for modules with BatchNorm
        only, which then sees both together; False runs two passes, and only the mixed one moves
        the running statistics.
    n_members : int, default=1
        Networks that are trained as one and whose predictions are averaged, each with its own
        seeds. Values of ``alpha`` and ``eta`` are taken in turn.
    module : str, class or callable, default="mlp"
        The network: ``"mlp"`` is the paper's with ReLU, ``"mlp-gelu"`` the same with GELU; or a
        torch module class, or a function that returns a new module. Arguments named
        ``n_features`` and ``n_outputs`` are filled in. It returns predictions.
    module_params : dict or None, default=None
        Further arguments of the module, for instance ``{"d_hidden": (256, 256)}``; see
        :class:`mixupe_sklearn.modules.MLP`.
    optimizer : {"adam", "adamw", "nadam", "rmsprop", "sgd"} or class, default="adam"
        The optimizer, by name or as a torch class.
    optimizer_params : dict or None, default=None
        Further arguments of the optimizer, for instance ``{"momentum": 0.9}``.
    lr : float, default=0.001
        Learning rate.
    lr_schedule : {"constant", "cosine", "onecycle"}, default="constant"
        How the learning rate moves from step to step of ``fit``: not at all, down to zero along
        half a cosine, or up for 30 % of the steps and then down. ``partial_fit`` does not know
        its last step and keeps the rate.
    weight_decay : float, default=0.0
        L2 penalty of the optimizer.
    max_epochs : int, default=25
        Number of passes over the rows.
    min_steps : int, default=0
        Small tables are trained for more epochs than ``max_epochs``, up to this many steps.
    batch_size : int, default=100
        Rows a step.
    early_stopping : bool, default=False
        Whether training stops when the validation loss no longer falls; the weights of the best
        epoch are kept. The rows for it come from ``X_val``, else a share is set aside.
    validation_fraction : float, default=0.1
        The share set aside, if ``early_stopping`` and no ``X_val`` is given.
    n_iter_no_change : int, default=10
        Epochs without an improvement of at least ``tol`` before training stops early.
    tol : float, default=1e-4
        Smallest fall of the validation loss that counts.
    warm_start : bool, default=False
        Whether ``fit`` goes on from the last fit's weights (and centre) instead of new ones.
        Parameters may be changed in between, but for module, optimizer, callbacks and device.
    callbacks : list of skorch callbacks or None, default=None
        Added to the net, for instance a learning-rate schedule. Copies are used; the ones that
        have seen the training are in ``net_.callbacks_``.
    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
        Where to train; ``"auto"`` is a CUDA device where there is one.
    n_threads : int or None, default=None
        Threads of torch while training. None chooses: one for a small network, more for a large
        one where they help; a number that the user or joblib has set is not exceeded.
    compile : bool, default=False
        Whether the module is compiled with ``torch.compile`` while it trains; where that fails,
        one warning is given and the module runs as it is. The built-in network trains faster
        without.
    random_state : int, RandomState instance or None, default=None
        Seed of initial weights, order, mixing and dropout. Equal seeds give equal results on one
        machine (in threads, for modules without dropout). numpy's and torch's global generators
        are left as found; None takes fresh entropy.
    verbose : int, default=0
        1 shows a progress bar, 2 a line for each epoch.

    Attributes
    ----------
    y_mean_, y_scale_ : ndarray of shape (n_outputs,)
        What targets are standardised with.
    nets_ : list of MixupENetRegressor
        The skorch net of each member; ``nets_[0].module_`` is its trained torch module.
    net_ : MixupENetRegressor
        The first of them.
    member_weights_ : ndarray of shape (n_members,)
        What each member counts in ``predict``; they sum to one.
    X_mean_ : ndarray of shape (n_features,)
        Training mean, subtracted from every row: the method's derivation asks for it. It stays
        that of the first call under ``partial_fit`` and ``warm_start``, since moving it would move
        the network's inputs.
    history_ : list of dict
        What was recorded in each epoch, among it ``train_loss``, ``train_mixup_loss``,
        ``train_penalty``, ``loss_scale``, ``dur`` (seconds), and ``valid_loss`` where there are
        validation rows.
    loss_curve_ : list of float
        Training loss of each epoch.
    n_iter_ : int
        Number of epochs run.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, where all are strings.

    See Also
    --------
    MixupEClassifier : The same for classes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from mixupe_sklearn import MixupERegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> regressor = make_pipeline(StandardScaler(), MixupERegressor(random_state=0))
    >>> bool(regressor.fit(X, y).score(X, y) > 0.5)
    True
    """

    _net_class = MixupENetRegressor
    _y_is_numeric = True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        return tags

    @with_callbacks
    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None, sample_weight_val=None):
        """Train the network on rows and their targets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows: numbers without holes (see :func:`make_preprocessor` for others).
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Numbers.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each row's loss and penalty; a mixed row carries the weights of both. Only
            their ratios matter, and rows of weight zero are left out before anything else.
        X_val, y_val : array-like, default=None
            Rows to measure the validation loss on, in every epoch. In a pipeline,
            ``Pipeline(..., transform_input=["X_val"])`` brings them here transformed.
        sample_weight_val : array-like or None, default=None
            Their weights.

        Returns
        -------
        self : MixupERegressor
            The fitted estimator.
        """
        with all_or_nothing(self):
            return self._fit(X, y, sample_weight, X_val, y_val, sample_weight_val)

    def partial_fit(self, X, y, sample_weight=None):
        """Train for one epoch on the given rows, going on from where the network is.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Numbers; those of the first call fix how targets are standardised.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each row, relative to the others of this call.

        Returns
        -------
        self : MixupERegressor
            The estimator.
        """
        with all_or_nothing(self):
            return self._partial_fit(X, y, sample_weight, learn=not hasattr(self, "net_"))

    def predict(self, X):
        """Return the predicted numbers.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Shaped as the targets were; a single column is flat.
        """
        y = self._predicted(X, lambda logits: self._in_units(self._mean(logits)))
        return y[:, 0] if self._y_is_flat else y

    def predict_members(self, X):
        """Return what each member predicts: their spread tells how sure they are.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        y : ndarray of shape (n_members, n_samples) or (n_members, n_samples, n_outputs)
            ``predict`` is their mean, weighted by ``member_weights_``.
        """
        y = self._predicted(
            X, lambda logits: self._in_units(self._member_means(logits)).swapaxes(0, 1)
        ).swapaxes(0, 1)
        return y[..., 0] if self._y_is_flat else y
