"""MixupERegressor: MixupE for regression, through the squared-error form of the loss."""

from sklearn.base import RegressorMixin

from mixupe_sklearn._estimators.base import BaseMixupE, all_or_nothing
from mixupe_sklearn._estimators.fit_monitor import with_callbacks
from mixupe_sklearn._estimators.inputs import NumericTargets
from mixupe_sklearn._net.net import MixupENetRegressor


class MixupERegressor(NumericTargets, RegressorMixin, BaseMixupE):
    """Neural network regressor for tables, trained with MixupE.

    The squared error has the form of the paper's derivation, ``h(f) - y'f`` with
    ``h(f) = |f|^2 / 2``, so the method applies unchanged. Targets are standardised internally.

    Parameters
    ----------
    method : {"mixupe", "mixup", "erm", "erm+penalty"}, default="mixupe"
        The training method: the paper's MixupE, plain Mixup, no mixing, or the penalty alone.
    penalty : {"logit", "directional"}, default="logit"
        The paper's fast penalty from the logits, or its exact form, the derivative of the loss
        along the direction to the training mean.
    penalty_order : {1, 2}, default=1
        2 adds the exact second-order directional term; experimental and slower. See
        :class:`MixupELoss`.
    alpha : float or sequence of float, default=(0.0, 0.2)
        Parameter of the Beta distribution of mixing weights, *not* an L2 penalty as in
        ``MLPClassifier`` (that is ``weight_decay`` here). 0 means no mixing; larger values mix
        more. Members take several values in turn; those of one value form a group.
    beta : float or None, default=None
        Second parameter of the Beta distribution; None means ``alpha``.
    eta : float or sequence of float, default=1.0
        Weight of the penalty; 0 is exactly plain Mixup. Members take several values in turn.
    penalty_fraction : float, default=0.25
        Fraction of each batch, drawn at random, on which the penalty is measured: an unbiased
        estimate in less time.
    lam_per : {"batch", "sample"}, default="batch"
        One mixing weight for each batch (the paper) or for each sample.
    mix_at : {"input", "hidden"}, default="input"
        Where samples are mixed; ``"hidden"`` is Manifold Mixup, after a random hidden layer in each
        batch.
    single_pass : bool, default=True
        Whether mixed and clean samples share one forward pass. This matters only for modules with
        BatchNorm, which then sees both together. False runs two passes, and only the mixed one
        updates the running statistics.
    n_members : int, default=8
        Number of networks, each with its own seeds, whose predictions are averaged. They train
        together; with a custom module, device or callbacks they train one after the other.
    module : str, class or callable, default="mlp-tabular"
        The network: ``"mlp"`` is the paper's, with two hidden layers of 128 and ReLU;
        ``"mlp-gelu"`` the same with GELU; ``"mlp-tabular"`` has three layers of 128 with GELU and
        learns a factor for each input. Or a torch module class, or a function that returns a new
        module; it gets arguments named ``n_features`` and ``n_outputs``, and returns predictions.
    module_params : dict or None, default=None
        Further arguments of the module, for instance ``{"d_hidden": (256, 256)}``; see
        :class:`mixupe_sklearn.modules.MLP`.
    scale_inputs : bool, default=True
        Whether features are divided by their standard deviation; a feature of two values, such as a
        one-hot column, by their difference. The pipeline of :func:`make_mixupe_pipeline` scales its
        columns itself and sets False. The mean is subtracted in either case.
    optimizer : {"adam", "adamw", "nadam", "rmsprop", "sgd"} or class, default="adam"
        The optimizer, by name or as a torch class.
    optimizer_params : dict or None, default=None
        Further arguments of the optimizer, for instance ``{"momentum": 0.9}``.
    lr : float, default=0.01
        Learning rate.
    lr_schedule : {"constant", "cosine", "onecycle"}, default="cosine"
        Schedule of the learning rate over the steps of ``fit``: constant, down to zero along half a
        cosine, or up for 30 % of the steps and then down. ``partial_fit`` does not know its last
        step and keeps the rate constant.
    weight_decay : float, default=0.0
        L2 penalty of the optimizer.
    max_epochs : int, default=50
        Number of passes over the samples.
    min_steps : int, default=1000
        Small tables train for more epochs than ``max_epochs``, up to this many steps.
    batch_size : int, default=100
        Samples per step.
    early_stopping : bool, default=True
        Whether training stops when the validation loss no longer improves; the weights of the best
        epoch are kept. The validation samples are ``X_val`` or else held-out training samples.
    validation_fraction : float, default=0.25
        The held-out fraction, with ``early_stopping`` and without ``X_val``.
    n_iter_no_change : int, default=10
        Evaluations of the validation loss without an improvement of more than ``tol`` before
        training stops.
    tol : float, default=1e-4
        Smallest decrease of the validation loss that counts as an improvement.
    ema_decay : float or None, default=0.99
        Decay of an exponential moving average of the weights, for instance 0.99. After step ``t``
        the decay is ``min(ema_decay, (1 + t) / (10 + t))``. The validation loss is that of the
        average, and the model keeps the average; continued training starts from it. None keeps the
        weights themselves.
    time_limit : float or None, default=None
        Seconds after which ``fit`` ends with a warning and keeps the best weights so far, or the
        last ones without early stopping. At least one step is taken.
    warm_start : bool, default=False
        Whether ``fit`` continues from the weights (and the mean) of the last fit. Parameters may
        change in between, except module, optimizer, callbacks and device.
    callbacks : list of skorch callbacks or None, default=None
        Added to the net, for instance a learning-rate schedule. The net uses copies, in
        ``net_.callbacks_``.
    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
        Device of the training; ``"auto"`` is a CUDA device if there is one.
    n_threads : int or None, default=None
        Threads during training. None takes up to the number that the user or joblib has set for
        torch: the members of an ensemble are spread over them, and a single network uses more than
        one only if it is large. The number does not change the result of an ensemble.
    compile : bool, default=False
        Whether the module is compiled with ``torch.compile`` for training. If that fails, there is
        one warning and the module runs as it is. The built-in network trains faster without.
    random_state : int, RandomState instance or None, default=None
        Seed of initial weights, order, mixing and dropout. Equal seeds give equal results on one
        machine (in threads, if a module of your own has no dropout). numpy's and torch's global
        generators stay as they were; None takes fresh entropy.
    verbose : int, default=0
        1 shows a progress bar, 2 a line for each epoch.

    Attributes
    ----------
    y_mean_, y_scale_ : ndarray of shape (n_outputs,)
        Mean and scale of the standardised targets.
    nets_ : list of MixupENetRegressor
        The skorch net of each member; ``nets_[0].module_`` is its trained torch module.
    net_ : MixupENetRegressor
        The first of them.
    member_weights_ : ndarray of shape (n_members,)
        Weight of each member in ``predict``; they sum to one.
    X_mean_ : ndarray of shape (n_features,)
        Training mean, subtracted from every sample, as the derivation of the method requires.
        ``partial_fit`` and ``warm_start`` keep the mean of the first call, since a new one would
        shift the network's inputs.
    X_scale_ : ndarray of shape (n_features,) or None
        What the centred features are divided by; None without ``scale_inputs``.
    history_ : list of dict
        Records of each epoch (means over members), such as ``train_loss``, ``train_mixup_loss``,
        ``train_penalty``, ``loss_scale``, ``dur`` (seconds), and ``valid_loss`` with validation
        samples.
    loss_curve_ : list of float
        Training loss of each epoch.
    n_iter_ : int
        Number of epochs of the last ``fit``, and of ``partial_fit`` since.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Names of the features, if all are strings.

    See Also
    --------
    MixupEClassifier : MixupE for classification.

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
        """Train on samples and their targets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training samples: numbers without missing values (see :func:`make_preprocessor` for
            other data).
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Numbers.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each sample's loss and penalty; weights are mixed like samples. Only their
            ratios matter, and samples of weight zero are removed first.
        X_val, y_val : array-like, default=None
            Validation samples, on which the loss is measured. In a pipeline,
            ``Pipeline(..., transform_input=["X_val"])`` transforms them.
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
        """Train for one epoch on the given samples, from the current weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Numbers; those of the first call determine the standardisation of targets.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each sample, relative to the others of this call.

        Returns
        -------
        self : MixupERegressor
            The estimator.
        """
        with all_or_nothing(self):
            return self._partial_fit(X, y, sample_weight, learn=not hasattr(self, "net_"))

    def predict(self, X):
        """Return the predicted targets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            In the shape of the targets; a single column is one-dimensional.
        """
        y = self._predicted(X, self._in_units)
        return y[:, 0] if self._y_is_flat else y

    def predict_members(self, X):
        """Return the predictions of each member; their spread measures the uncertainty.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_members, n_samples) or (n_members, n_samples, n_outputs)
            ``predict`` is their mean, weighted by ``member_weights_``.
        """
        y = self._predicted(X, self._in_units, by_member=True)
        return y[..., 0] if self._y_is_flat else y
