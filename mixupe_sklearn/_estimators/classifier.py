"""MixupEClassifier: MixupE for classification of tables."""

import numpy as np
from sklearn.base import ClassifierMixin

from mixupe_sklearn._data.rows import to_numpy
from mixupe_sklearn._estimators.base import BaseMixupE, all_or_nothing
from mixupe_sklearn._estimators.fit_monitor import with_callbacks
from mixupe_sklearn._estimators.inputs import ClassTargets
from mixupe_sklearn._net.net import MixupENet


class MixupEClassifier(ClassTargets, ClassifierMixin, BaseMixupE):
    """Neural network classifier for tables, trained with MixupE.

    Mixup trains on random mixtures of two samples and of their labels. MixupE adds a penalty on the
    first directional derivative of the loss, which Mixup regularises only implicitly. The defaults
    gave the best results on validation samples of the paper's datasets;
    ``MixupEClassifier(**preset("paper"))`` is a single network, trained as in the paper.

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
        module; it gets arguments named ``n_features`` and ``n_outputs``, and returns logits.
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
    class_weight : dict, list of dicts, "balanced" or None, default=None
        Weight of each class, multiplied with ``sample_weight``; ``"balanced"`` gives all classes
        the same total. For multi-label targets, a list with a dict for each label.
    early_stopping : bool, default=True
        Whether training stops when the validation loss no longer improves; the weights of the best
        epoch are kept. The validation samples are ``X_val`` or else held-out training samples, a
        different fold for each member of a group. They also determine the weight of each group.
    validation_fraction : float, default=0.25
        The held-out fraction, with ``early_stopping`` and without ``X_val``.
    n_iter_no_change : int, default=10
        Evaluations of the validation loss without an improvement of more than ``tol`` before
        training stops. One network is evaluated in each epoch, an ensemble at most a hundred times.
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
    classes_ : ndarray of shape (n_classes,)
        Class labels; for multi-label targets the column numbers.
    nets_ : list of MixupENet
        The skorch net of each member; ``nets_[0].module_`` is its trained torch module.
    net_ : MixupENet
        The first of them.
    member_weights_ : ndarray of shape (n_members,)
        Weight of each member in ``predict_proba``; they sum to one.
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
    MixupERegressor : MixupE for regression.
    MixupENet : The skorch net of the estimator.
    MixupELoss : The loss, for a torch training loop.

    Notes
    -----
    A module with one output for two classes uses the sigmoid form of the loss, any other the
    softmax form; multi-label targets (an indicator matrix) use one sigmoid per label.

    References
    ----------
    Zou et al., "MixupE: Understanding and Improving Mixup from Directional Derivative
    Perspective", UAI 2023.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> from mixupe_sklearn import MixupEClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> classifier = MixupEClassifier(random_state=0).fit(X_train, y_train)
    >>> bool(classifier.score(X_test, y_test) > 0.95)
    True
    """

    _net_class = MixupENet
    _y_is_numeric = False

    def __init__(
        self,
        *,
        method="mixupe",
        penalty="logit",
        penalty_order=1,
        alpha=(0.0, 0.2),
        beta=None,
        eta=1.0,
        penalty_fraction=0.25,
        lam_per="batch",
        mix_at="input",
        single_pass=True,
        n_members=8,
        module="mlp-tabular",
        module_params=None,
        scale_inputs=True,
        optimizer="adam",
        optimizer_params=None,
        lr=0.01,
        lr_schedule="cosine",
        weight_decay=0.0,
        max_epochs=50,
        min_steps=1000,
        batch_size=100,
        class_weight=None,
        early_stopping=True,
        validation_fraction=0.25,
        n_iter_no_change=10,
        tol=1e-4,
        ema_decay=0.99,
        time_limit=None,
        warm_start=False,
        callbacks=None,
        device="auto",
        n_threads=None,
        compile=False,
        random_state=None,
        verbose=0,
    ):
        super().__init__(
            method=method,
            penalty=penalty,
            penalty_order=penalty_order,
            alpha=alpha,
            beta=beta,
            eta=eta,
            penalty_fraction=penalty_fraction,
            lam_per=lam_per,
            mix_at=mix_at,
            single_pass=single_pass,
            n_members=n_members,
            module=module,
            module_params=module_params,
            scale_inputs=scale_inputs,
            optimizer=optimizer,
            optimizer_params=optimizer_params,
            lr=lr,
            lr_schedule=lr_schedule,
            weight_decay=weight_decay,
            max_epochs=max_epochs,
            min_steps=min_steps,
            batch_size=batch_size,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            tol=tol,
            ema_decay=ema_decay,
            time_limit=time_limit,
            warm_start=warm_start,
            callbacks=callbacks,
            device=device,
            n_threads=n_threads,
            compile=compile,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    @with_callbacks
    def fit(self, X, y, sample_weight=None, *, X_val=None, y_val=None, sample_weight_val=None):
        """Train on samples and their labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training samples: numbers without missing values (see :func:`make_preprocessor` for
            other data).
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Labels of any type, or a matrix of zeros and ones for multi-label targets.
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
        self : MixupEClassifier
            The fitted estimator.
        """
        with all_or_nothing(self):
            return self._fit(X, y, sample_weight, X_val, y_val, sample_weight_val)

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Train for one epoch on the given samples, from the current weights.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training samples.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Labels.
        classes : array-like of shape (n_classes,) or None, default=None
            All labels of this and later calls; required at the first call.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each sample, relative to the others of this call.

        Returns
        -------
        self : MixupEClassifier
            The estimator.
        """
        with all_or_nothing(self):
            learn = self._announce(classes, to_numpy(y), is_new=not hasattr(self, "net_"))
            return self._partial_fit(X, y, sample_weight, learn=learn)

    def predict_proba(self, X):
        """Return the probability of each class, or of each label.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``. For multi-label targets, each column is the
            probability of its label.
        """
        return self._predicted(X, self._by_class)

    def predict_proba_members(self, X):
        """Return the probabilities of each member; their spread measures the uncertainty.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        proba : ndarray of shape (n_members, n_samples, n_classes)
            ``predict_proba`` is their mean, weighted by ``member_weights_``.
        """
        return self._predicted(X, self._by_class, by_member=True)

    def predict_log_proba(self, X):
        """Return the logarithm of ``predict_proba``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
            Minus infinity where a probability is zero.
        """
        with np.errstate(divide="ignore"):
            proba = self.predict_proba(X)
            return np.log(proba, out=proba)

    def predict(self, X):
        """Return the most probable class of each sample, or the labels above one half.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_labels)
            Predicted labels.
        """
        return self._predicted(X, self._by_class, self._labels_of)
