"""The parameters that the classifiers of pictures and of sounds share."""


class SignalParameters:
    """Keeps them, and does nothing else with them."""

    def __init__(
        self,
        *,
        method,
        penalty,
        penalty_order,
        alpha,
        beta,
        eta,
        penalty_fraction,
        lam_per,
        mix_at,
        single_pass,
        module,
        module_params,
        optimizer,
        optimizer_params,
        lr,
        lr_schedule,
        weight_decay,
        max_epochs,
        batch_size,
        class_weight,
        early_stopping,
        validation_fraction,
        n_iter_no_change,
        tol,
        warm_start,
        callbacks,
        device,
        n_threads,
        compile,
        amp,
        channels_last,
        n_workers,
        distributed,
        random_state,
        verbose,
    ):
        # Not that of the tables' base class: it has parameters which there are none of here.
        self.method = method
        self.penalty = penalty
        self.penalty_order = penalty_order
        self.alpha = alpha
        self.beta = beta
        self.eta = eta
        self.penalty_fraction = penalty_fraction
        self.lam_per = lam_per
        self.mix_at = mix_at
        self.single_pass = single_pass
        self.module = module
        self.module_params = module_params
        self.optimizer = optimizer
        self.optimizer_params = optimizer_params
        self.lr = lr
        self.lr_schedule = lr_schedule
        self.weight_decay = weight_decay
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.class_weight = class_weight
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.tol = tol
        self.warm_start = warm_start
        self.callbacks = callbacks
        self.device = device
        self.n_threads = n_threads
        self.compile = compile
        self.amp = amp
        self.channels_last = channels_last
        self.n_workers = n_workers
        self.distributed = distributed
        self.random_state = random_state
        self.verbose = verbose
