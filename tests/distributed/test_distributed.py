"""Several real processes that train one network, started as ``torchrun`` starts them."""

import itertools
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from distributed_programs import (
    CASES,
    FAILURES,
    IMAGE_CASES,
    OTHER_CASES,
    rows,
    small_mlp,
    trained,
    with_images,
)

from mixupe_sklearn import MixupELoss
from mixupe_sklearn._distributed.net import DistributedNet
from mixupe_sklearn._distributed.process_group import join, trains_together
from mixupe_sklearn._distributed.sharding import Shard, own_draw, shard_sizes, sharded_loss
from mixupe_sklearn._method.formulas import Draw

PROGRAM = Path(__file__).parents[1] / "distributed_programs.py"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def environment(**own):
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROGRAM.parents[1]), **own}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The results of each of two processes in all cases, and the finished run."""
    folder = tmp_path_factory.mktemp("distributed")
    where = ("--master-addr", "127.0.0.1", "--master-port", free_port())
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *where)
    run = subprocess.run(
        [*torchrun, PROGRAM, "all", folder],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr
    processes = [pickle.loads((folder / f"found{rank}.pickle").read_bytes()) for rank in (0, 1)]
    return *processes, run


def assert_same(first, second, tolerance):
    for name, weight in first["weights"].items():
        np.testing.assert_allclose(weight, second["weights"][name], rtol=0, atol=tolerance)
    np.testing.assert_allclose(first["figures"], second["figures"], rtol=0, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_two_processes_train_to_the_weights_of_one(name, found):
    main, other, _ = found
    alone = trained(CASES[name], is_distributed=False)
    tolerance = 1e-10 if CASES[name].get("dtype") != "float32" else 1e-6
    assert_same(main[name], alone, tolerance)
    assert_same(main[name], other[name], 0)


@pytest.mark.parametrize("name", OTHER_CASES)
def test_two_processes_agree_where_they_differ_from_one(name, found):
    main, other, _ = found
    assert_same(main[name], other[name], 0)
    alone = trained(OTHER_CASES[name], is_distributed=False)
    difference = np.abs(main[name]["figures"] - alone["figures"])
    assert 1e-6 < difference.max() < 0.3  # other draws or statistics of the same problem


def test_the_same_seed_gives_the_same_dropout(found):
    assert_same(found[0]["dropout"], found[0]["dropout again"], 0)


def test_only_the_main_process_writes_and_prints(found):
    main, other, run = found
    assert main["keeping"]["written"] == [
        *("alone.pt", "criterion.pt", "history.json", "optimizer.pt", "params.pt")
    ]
    assert other["keeping"]["written"] == []
    assert run.stdout.count("train_loss") == 1  # the header of the table of epochs
    assert run.stderr.count("?epoch/s]") == 1  # a new progress bar
    assert "Warning" not in run.stderr


def test_processes_that_were_seeded_differently_train_one_network(found):
    main, other, _ = found
    for name, weight in main["keeping"]["weights"].items():
        np.testing.assert_array_equal(weight, other["keeping"]["weights"][name])


@pytest.mark.parametrize("name", ["augmented", "stopped early"])
def test_the_estimator_trains_to_the_weights_of_one_process(name, found):
    together, alone = found[0]["images"][name], with_images(IMAGE_CASES[name])
    assert (together["net"], alone["net"]) == ("DistributedNet", "MixupENet")
    assert_same(together, alone, 1e-5)
    np.testing.assert_allclose(together["proba"], alone["proba"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", IMAGE_CASES)
def test_the_estimators_of_all_processes_are_the_same(name, found):
    main, other = (process["images"][name] for process in found[:2])
    assert_same(main, other, 0)
    np.testing.assert_array_equal(main["proba"], other["proba"])


def test_averaged_weights_stop_early_in_the_same_epoch_of_all_processes(found):
    figures = [process["images"]["averaged"]["figures"] for process in found[:2]]
    assert len(figures[0]) == len(figures[1]) < IMAGE_CASES["averaged"]["max_epochs"]


def test_the_main_process_decides_when_training_stops(found):
    by_main = {"n_epochs": 2}
    for main_asks, other_asks in (process["stops"] for process in found[:2]):
        assert main_asks == by_main
        assert other_asks["n_epochs"] == 4


@pytest.mark.parametrize(("event", "rank"), FAILURES)
def test_a_callback_that_fails_in_one_process_ends_all_processes(event, rank, found):
    errors = [process["failures"][event, rank] for process in found[:2]]
    assert errors[rank] == f"ValueError: No luck\nat {event}."
    assert errors[1 - rank].startswith(
        f"ConnectionError: Got an error in process {rank} in epoch 1 (ValueError: No luck at {event}.)"
    )


@pytest.mark.parametrize(
    ("name", "difference"),
    [
        ("samples", "numbers of samples in the processes (20, 21)"),
        ("targets", "checksums of the targets in the processes ("),
        ("inputs", "inputs in the processes,"),
        ("epochs", "max_epochs in the processes (1, 2)"),
        ("batches", "batch_size in the processes (8, 9)"),
        ("method", "criterion__alpha in the processes (0.0, 0.5)"),
        ("optimizer", "settings of the optimizer (group 0) in the processes ({'lr': 0.1,"),
        ("network", "numbers of weights in the processes (123, 135)"),
        ("validation", "checksums of the validation targets in the processes ("),
    ],
)
def test_processes_that_would_train_different_things_are_refused(name, difference, found):
    main, other = (process["differences"][name] for process in found[:2])
    assert main == other
    assert main.startswith(f"ValueError: Got different {difference}")


def test_inputs_may_differ_by_rounding(found):
    assert {process["differences"]["rounding"] for process in found[:2]} == {"nothing"}


@pytest.mark.parametrize("rank", [0, 1])
def test_after_training_a_net_is_plain_continues_and_can_be_pickled(rank, found):
    kept = found[rank]["keeping"]
    assert (kept["module"], kept["optimizer"], kept["history"]) == ("MLP", "SGD", 4)
    assert kept["is_same"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("hidden", "ValueError: Got penalty='directional' with mix_at='hidden' in 2 processes"),
        ("second order", "ValueError: Got penalty_order=2 in 2 processes, but expected"),
        ("batch norm", "ValueError: Got batches of 2 samples for 2 processes"),
        ("idle", "RuntimeError: Expected to have finished reduction in the prior iteration"),
        ("loader", "ValueError: Got batch_size=7 for 2 processes that read their own samples"),
        ("scoring", "ValueError: Got the callback score with on_train=True and use_caching=True"),
    ],
)
def test_unsupported_settings_raise_in_all_processes(name, sentence, found):
    for process in found[:2]:
        assert process["refusals"][name].startswith(sentence)


def test_a_process_ends_with_an_error_if_another_one_is_killed(tmp_path):
    port = free_port()
    processes = []
    for rank in ("0", "1"):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
        place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, PROGRAM, "for ever", tmp_path]
        processes.append(
            subprocess.Popen(command, env=environment(**place), stderr=subprocess.PIPE, text=True)
        )
    try:
        until = time.monotonic() + 120
        while not all((tmp_path / f"begun{rank}").exists() for rank in (0, 1)):
            assert all(process.poll() is None for process in processes)
            assert time.monotonic() < until
            time.sleep(0.05)
        processes[1].send_signal(signal.SIGKILL)
        _, output = processes[0].communicate(timeout=60)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert processes[0].returncode == 1
    last = output.strip().splitlines()[-1]
    assert "ConnectionError: Got no answer from another process in epoch " in last
    assert last.endswith("but expected 2 processes: one has ended; start all of them again.")


def test_in_one_process_the_distributed_net_equals_the_plain_one():
    assert_same(trained({}, is_distributed=True), trained({}, is_distributed=False), 0)


def test_n_batches_accounts_for_all_processes(monkeypatch):
    net = DistributedNet(small_mlp(batch_norm=True), batch_size=6, train_split=None).initialize()
    dataset = net.get_dataset(*(part[:21] for part in rows()))
    assert net.n_batches(dataset) == 4
    monkeypatch.setattr(net, "_join", lambda: SimpleNamespace(num_processes=2))
    assert net.n_batches(dataset) == 3  # the last three samples are too few for two processes
    assert net._n_processes == 1


def test_distributed_true_in_one_process_raises():
    with pytest.raises(ValueError, match="Got distributed=True in a single process"):
        trains_together(True)


def test_a_missing_accelerate_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ImportError, match=r"pip install mixupe-sklearn\[distributed\]"):
        join.__wrapped__()


# The shards of a step, one after the other in this process.


def step_in_shards(n_shards, X, y, weight, draw, is_cut=False, **params):
    """Loss parts of each shard, and the mean of the gradients."""
    torch.manual_seed(0)
    module, sizes = small_mlp(), shard_sizes(len(y), n_shards)
    found = {}

    def run(rank, total):
        shard = Shard(rank, n_shards, total)
        criterion = MixupELoss(eta=0.5, random_state=0, **params)
        if not is_cut:
            return sharded_loss(criterion, shard, module, X, y, weight, draw=draw)
        at = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        shard = shard._replace(sizes=sizes)
        own = None if weight is None else weight[at]
        return sharded_loss(criterion, shard, module, X[at], y[at], own, draw=draw)

    for rank in range(n_shards):  # the addends of each process
        run(rank, lambda values, rank=rank: found.setdefault(rank, values.clone()))
    total = sum(found.values())
    parts = [run(rank, lambda values: total.clone()) for rank in range(n_shards)]
    (sum(part.loss for part in parts) / n_shards).backward()
    return parts, [parameter.grad for parameter in module.parameters()]


def step_alone(X, y, weight, draw, **params):
    torch.manual_seed(0)
    module = small_mlp()
    parts = MixupELoss(eta=0.5, random_state=0, **params)(module, X, y, weight, draw=draw)
    parts.loss.backward()
    return parts, [parameter.grad for parameter in module.parameters()]


def assert_same_step(together, alone):
    (parts, gradients), (expected, expected_gradients) = together, alone
    for part in parts:
        torch.testing.assert_close(part[:4], expected[:4])
    torch.testing.assert_close(gradients, expected_gradients)


def batch(n_rows):
    X, y = rows(n_rows)
    weight = np.linspace(0, 2, n_rows)
    return torch.from_numpy(X), torch.from_numpy(y), torch.from_numpy(weight)


@pytest.mark.parametrize("n_shards", [1, 2, 3, 7])
@pytest.mark.parametrize("penalty", ["logit", "directional"])
@pytest.mark.parametrize("n_rows", [1, 5, 12])
def test_shards_add_up_to_the_batch(n_shards, penalty, n_rows):
    params = {"penalty": penalty, "lam_per": "sample", "alpha": 1.0, "penalty_fraction": 0.4}
    together = step_in_shards(n_shards, *batch(n_rows), None, **params)
    assert_same_step(together, step_alone(*batch(n_rows), None, **params))


@pytest.mark.parametrize("n_rows", [1, 3, 8])
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_hidden_states_are_mixed_within_their_shard(n_rows, stage, fraction):
    rng, n_shards = np.random.default_rng(0), 2
    partner = rng.permutation(n_rows)
    clean = None if fraction == 1 else partner[: max(1, n_rows // 2)]
    draw = Draw(0.3, partner, stage, clean)
    params = {"mix_at": "hidden", "alpha": 1.0, "penalty_fraction": fraction}
    together = step_in_shards(n_shards, *batch(n_rows), draw, **params)
    # One process does the same with the partners and clean samples of the shards.
    sizes = shard_sizes(n_rows, n_shards)
    partners, cleans = [], []
    for rank in range(n_shards):
        own = own_draw(draw, n_rows, Shard(rank, n_shards, None, sizes))
        start = sum(sizes[:rank])
        partners.append(start + own.partner[: sizes[rank]])
        cleans.append(start + (own.partner if own.clean is None else own.clean)[: sizes[rank]])
    within = np.concatenate(partners)
    assert sorted(within) == list(range(n_rows))
    clean = None if fraction == 1 else np.concatenate(cleans)
    alone = step_alone(*batch(n_rows), Draw(0.3, within, stage, clean), **params)
    assert_same_step(together, alone)


@pytest.mark.parametrize("rank", [0, 1])
def test_every_order_of_partners_within_a_shard_is_equally_likely(rank):
    shard = Shard(rank, 2, None, sizes=(3, 2))
    found = Counter(
        tuple(own_draw(Draw(0.3, np.array(partner)), 5, shard).partner.tolist())
        for partner in itertools.permutations(range(5))
    )
    n_rows = shard.sizes[rank]
    assert set(found) == set(itertools.permutations(range(n_rows)))
    assert set(found.values()) == {120 // math.factorial(n_rows)}


@pytest.mark.parametrize("method", ["erm", "erm+penalty"])
@pytest.mark.parametrize("clean", [None, np.array([0, 1]), np.array([5, 2])])
def test_samples_that_are_read_by_shard_add_up_to_the_batch(method, clean):
    draw, params = Draw(clean=clean), {"method": method}
    together = step_in_shards(2, *batch(7), draw, is_cut=True, **params)
    assert_same_step(together, step_alone(*batch(7), draw, **params))


def test_a_distributed_net_can_be_cloned():
    from sklearn.base import clone

    net = clone(DistributedNet(small_mlp, max_epochs=2))
    assert net.max_epochs == 2
