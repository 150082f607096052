"""MixupEClassifier: MixupE for tables, as scikit-learn users expect a classifier to be."""

import numpy as np
from sklearn.base import ClassifierMixin

from mixupe_sklearn._data.rows import to_numpy
from mixupe_sklearn._estimators.base import BaseMixupE, all_or_nothing
from mixupe_sklearn._estimators.fit_monitor import with_callbacks
from mixupe_sklearn._estimators.targets import ClassTargets
from mixupe_sklearn._net.net import MixupENet


class MixupEClassifier(ClassTargets, ClassifierMixin, BaseMixupE):
    """Neural network classifier for tables, trained with MixupE.

    Mixup trains on random blends of two rows and of their labels; MixupE adds a penalty on the
    first directional derivative of the loss, which Mixup regularises only by implication. The
    defaults are the ones that did best on validation rows of the paper's data sets;
    ``MixupEClassifier(**preset("paper"))`` is a single network as the paper trains it.

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
    alpha : float or sequence of float, default=(0.02, 0.2)
        Parameter of the Beta distribution that mixing weights are drawn from, *not* an L2 penalty
        as in ``MLPClassifier`` (that is ``weight_decay`` here). 0 means no mixing; larger values
        mix more. Members take several values in turn, and form a team for each.
    beta : float or None, default=None
        Second parameter of the Beta distribution; None means ``alpha``.
    eta : float or sequence of float, default=1.0
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
    n_members : int, default=8
        Networks that are trained as one and whose predictions are averaged, each with its own
        seeds. A module, device or callbacks of your own let them train one after the other.
    module : str, class or callable, default="mlp-gelu"
        The network: ``"mlp"`` is the paper's with ReLU, ``"mlp-gelu"`` the same with GELU; or a
        torch module class, or a function that returns a new module. Arguments named
        ``n_features`` and ``n_outputs`` are filled in. It returns logits.
    module_params : dict or None, default=None
        Further arguments of the module, for instance ``{"d_hidden": (256, 256)}``; see
        :class:`mixupe_sklearn.modules.MLP`.
    optimizer : {"adam", "adamw", "nadam", "rmsprop", "sgd"} or class, default="adam"
        The optimizer, by name or as a torch class.
    optimizer_params : dict or None, default=None
        Further arguments of the optimizer, for instance ``{"momentum": 0.9}``.
    lr : float, default=0.005
        Learning rate.
    lr_schedule : {"constant", "cosine", "onecycle"}, default="cosine"
        How the learning rate moves from step to step of ``fit``: not at all, down to zero along
        half a cosine, or up for 30 % of the steps and then down. ``partial_fit`` does not know
        its last step and keeps the rate.
    weight_decay : float, default=0.0
        L2 penalty of the optimizer.
    max_epochs : int, default=50
        Number of passes over the rows.
    min_steps : int, default=500
        Small tables are trained for more epochs than ``max_epochs``, up to this many steps.
    batch_size : int, default=100
        Rows a step.
    class_weight : dict, list of dicts, "balanced" or None, default=None
        Weight of each class, multiplied with ``sample_weight``; ``"balanced"`` gives all classes
        the same total. For several labels a row, a list with a dict for each label.
    early_stopping : bool, default=True
        Whether training stops when the validation loss no longer falls; the weights of the best
        epoch are kept. The rows for it come from ``X_val``, else a share is set aside: another
        one by each member of a team. Teams are then weighed by these rows.
    validation_fraction : float, default=0.25
        The share set aside, if ``early_stopping`` and no ``X_val`` is given.
    n_iter_no_change : int, default=10
        Looks at the validation loss without an improvement of at least ``tol`` before training
        stops early. One network looks at each epoch, members at most a hundred times.
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
    classes_ : ndarray of shape (n_classes,)
        Class labels; for multi-label targets the column numbers.
    nets_ : list of MixupENet
        The skorch net of each member; ``nets_[0].module_`` is its trained torch module.
    net_ : MixupENet
        The first of them.
    member_weights_ : ndarray of shape (n_members,)
        What each member counts in ``predict_proba``; they sum to one.
    X_mean_ : ndarray of shape (n_features,)
        Training mean, subtracted from every row: the method's derivation asks for it. It stays
        that of the first call under ``partial_fit`` and ``warm_start``, since moving it would move
        the network's inputs.
    history_ : list of dict
        What was recorded in each epoch (means over members), among it ``train_loss``,
        ``train_mixup_loss``, ``train_penalty``, ``loss_scale``, ``dur`` (seconds), and
        ``valid_loss`` where there are validation rows.
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
    MixupERegressor : The same for numbers.
    MixupENet : The skorch net inside.
    MixupELoss : The loss alone, for a torch loop.

    Notes
    -----
    A module with one output for two classes is trained with the sigmoid form of the loss, any
    other with the softmax form; multi-label targets (an indicator matrix) use one sigmoid a label.

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
        alpha=(0.02, 0.2),
        beta=None,
        eta=1.0,
        penalty_fraction=1.0,
        lam_per="batch",
        mix_at="input",
        single_pass=True,
        n_members=8,
        module="mlp-gelu",
        module_params=None,
        optimizer="adam",
        optimizer_params=None,
        lr=0.005,
        lr_schedule="cosine",
        weight_decay=0.0,
        max_epochs=50,
        min_steps=500,
        batch_size=100,
        class_weight=None,
        early_stopping=True,
        validation_fraction=0.25,
        n_iter_no_change=10,
        tol=1e-4,
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
        """Train the network on rows and their labels.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows: numbers without holes (see :func:`make_preprocessor` for others).
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Labels of any type, or a matrix of zeros and ones for several labels a row.
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
        self : MixupEClassifier
            The fitted estimator.
        """
        with all_or_nothing(self):
            return self._fit(X, y, sample_weight, X_val, y_val, sample_weight_val)

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Train for one epoch on the given rows, going on from where the network is.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,) or (n_samples, n_labels)
            Labels.
        classes : array-like of shape (n_classes,) or None, default=None
            All labels that will ever come; needed at the first call only.
        sample_weight : array-like of shape (n_samples,) or None, default=None
            Weight of each row, relative to the others of this call.

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
            Rows.

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            Columns in the order of ``classes_``. For multi-label targets, each column is the
            probability that its label is on.
        """
        return self._predicted(X, lambda logits: self._by_class(self._mean(logits)))

    def predict_proba_members(self, X):
        """Return the probabilities of each member: their spread tells how sure they are.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        proba : ndarray of shape (n_members, n_samples, n_classes)
            ``predict_proba`` is their mean, weighted by ``member_weights_``.
        """
        proba = self._predicted(
            X, lambda logits: self._by_class(self._member_means(logits)).swapaxes(0, 1)
        )
        return proba.swapaxes(0, 1)

    def predict_log_proba(self, X):
        """Return the logarithm of ``predict_proba``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
            Minus infinity where a probability is zero.
        """
        with np.errstate(divide="ignore"):
            proba = self.predict_proba(X)
            return np.log(proba, out=proba)

    def predict(self, X):
        """Return the most probable class of each row, or the labels above one half.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_labels)
            Predicted labels.
        """
        return self._predicted(
            X, lambda logits: self._labels.decode(self._by_class(self._mean(logits)))
        )
