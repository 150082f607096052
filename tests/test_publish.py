"""Publishing: the real client and a real server on loopback; nothing twice, no key in sight."""

import csv
import json
import subprocess
import sys
import time

import numpy as np
import openml
import pandas as pd
import pytest
import xmltodict
from openml_desk import KEY, Desk
from openml_server import API, HTML, OpenMLServer, cut, error, slow, status, trickle

from benchmarks._tabular.publish import describe, plan_of, publish
from benchmarks._tabular.publish.runs import Task, make_flow, predict_folds
from benchmarks._tabular.publish.server import Server
from benchmarks._tabular.report.results import choose
from benchmarks._tabular.rows import COLUMNS as ROW_COLUMNS
from mixupe_sklearn import MixupEClassifier, MixupENet, make_mixupe_pipeline
from mixupe_sklearn.datasets.openml import load_task

RUN = f"{API}/run/"
TRAINING = {"max_epochs": 1, "batch_size": 20}


@pytest.fixture
def server():
    with OpenMLServer() as server:
        yield server


@pytest.fixture
def desk(server):
    return Desk(server)


@pytest.fixture(autouse=True)
def settings(server, tmp_path, monkeypatch):
    """Openml as a user has it: this server is configured, and the key is in the environment."""
    monkeypatch.setattr(openml.config, "server", server.url)
    monkeypatch.setattr(openml.config, "apikey", "")
    monkeypatch.setattr(openml.config, "_root_cache_directory", tmp_path / "cache")
    monkeypatch.setenv("OPENML_API_KEY", KEY)


@pytest.fixture
def data(server, tmp_path):
    """Fingerprints of the tasks' tables."""
    return {n: load_task(n, cache_dir=tmp_path / "other").fingerprint for n in (59, 60)}


def row(data, task_id=59, method="mixupe", alpha=0.5, eta=0.1, **others):
    is_task = task_id is not None
    values = dict.fromkeys(ROW_COLUMNS) | {
        "source": "openml", "dataset": f"table-{task_id}", "task_id": task_id,
        "data_id": 61, "data": data[task_id] if is_task else "0" * 12, "n_rows": 60,
        "n_features": 3, "n_classes": 2, "splits": "holdout", "split": 0, "seed": 3,
        "method": method, "alpha": alpha, "eta": eta, "params": json.dumps(TRAINING),
        "grid": "paper", "n_together": 1, "train_losses": "1 0.5", "test_losses": "1 0.6",
        "error": "", "versions": "-", "commit": "-", "run": "2026-01-01T00:00:00",
    }  # fmt: skip
    metrics = [name for name in ROW_COLUMNS if name.startswith(("valid_", "test_"))]
    metrics = [
        *(name for name in metrics if name != "test_losses"),
        "fit_seconds",
        "predict_seconds",
    ]
    return values | dict.fromkeys(metrics, 0.25) | others


def frame(*rows):
    return pd.DataFrame(list(rows), columns=list(ROW_COLUMNS))


@pytest.fixture
def rows(data):
    """Two methods on one task, one on another."""
    erm = row(data, method="erm", alpha=None, eta=None)
    return frame(row(data), erm, row(data, 60, "mixup", 1.0, None))


@pytest.fixture
def send(rows, tmp_path):
    """Publish what is chosen from the rows: run numbers, and all that was said."""

    def call(rows=rows, **options):
        said = []
        ledger = options.pop("ledger", tmp_path / "published.csv")
        options = {"timeout": 5.0} | options
        run_ids = publish(choose(rows), rows, say=said.append, ledger=ledger, **options)
        return run_ids, said

    return call


def entries(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def settings_of(run):
    pairs = run["description"]["oml:parameter_setting"]
    return {pair["oml:name"]: json.loads(pair["oml:value"]) for pair in pairs}


def test_the_server_holds_what_a_local_run_predicts(desk, server, rows, send, tmp_path):
    run_ids, _ = send(rows[:1])
    assert run_ids == [101]
    table = load_task(59, cache_dir=tmp_path / "other")
    run = desk.runs[101]
    names = [name for name, _ in run["predictions"]["attributes"]]
    sent = pd.DataFrame(run["predictions"]["data"], columns=names)
    assert len(sent) == sum(len(test) for _, test in server.folds[59]) == 120
    told = {
        (int(e["@repeat"]), int(e["@fold"])): float(e["oml:value"])
        for e in run["description"]["oml:output_data"]["oml:evaluation"]
    }
    for number, (train, test) in enumerate(server.folds[59]):
        where = divmod(number, 3)
        part = sent[(sent["repeat"] == where[0]) & (sent["fold"] == where[1])]
        local = make_mixupe_pipeline(**settings_of(run)).fit(table.X.iloc[train], table.y[train])
        assert part["row_id"].tolist() == test.tolist()
        assert part["correct"].tolist() == server.tables[61]["class"].iloc[test].tolist()
        assert part["prediction"].tolist() == local.predict(table.X.iloc[test]).tolist()
        proba = local.predict_proba(table.X.iloc[test])
        np.testing.assert_allclose(part[["confidence.no", "confidence.yes"]], proba, atol=1e-6)
        assert (part["prediction"] == part["correct"]).mean() == pytest.approx(told[where])
        assert local.score(table.X.iloc[test], table.y[test]) == pytest.approx(told[where])


def test_a_run_states_all_parameters_and_the_versions(desk, send):
    send()
    expected = MixupEClassifier(
        method="mixupe", alpha=0.5, eta=0.1, random_state=3, device="cpu", **TRAINING
    )
    by_method = {settings_of(run)["method"]: run for run in desk.runs.values()}
    assert settings_of(by_method["mixupe"]) == expected.get_params()
    assert settings_of(by_method["erm"])["alpha"] == MixupEClassifier().alpha
    assert "torch" in by_method["mixupe"]["description"]["oml:setup_string"]
    assert len(desk.flows) == 1


def test_a_class_without_rows_has_no_probability(tmp_path):
    table = load_task(60, cache_dir=tmp_path / "other")
    task = Task(table, ["never", "no", "yes"], n_folds=5)
    lines, _ = predict_folds(task, TRAINING | {"random_state": 0})
    proba = np.array([line[6:] for line in lines])
    assert proba.shape == (60, 3)
    assert not proba[:, 0].any()
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)


def test_another_flow_under_the_same_name_and_version_is_not_used(desk, send):
    flow = xmltodict.parse(make_flow()._to_xml())["oml:flow"]
    flow["oml:parameter"].pop()
    desk._take_flow({"description": xmltodict.unparse({"oml:flow": flow})})
    run_ids, said = send()
    assert run_ids == []
    assert not desk.runs
    assert "got a flow of this name and version with other parameters" in said[1]


def test_others_can_make_the_estimator_of_a_run_again(desk, rows, send):
    run_ids, _ = send(rows[:2])
    for run_id in run_ids:
        pipeline = openml.runs.initialize_model_from_run(run_id)
        assert pipeline["classifier"].get_params() == settings_of(desk.runs[run_id])
        assert repr(pipeline["preprocessor"]) == repr(make_mixupe_pipeline()["preprocessor"])


def test_nothing_is_sent_twice(desk, server, send):
    first, _ = send()
    server.mend()
    assert send()[0] == first
    assert not server.requests
    assert len(desk.runs) == 3


def test_a_run_that_is_refused_does_not_stop_the_others(desk, server, send, tmp_path):
    take, refusals = server.routes["POST", RUN], [error(216, "Error in predictions")]
    server.routes["POST", RUN] = lambda request: refusals.pop() if refusals else take(request)
    run_ids, said = send()
    assert run_ids == [101, 102]
    [told] = [text for text in said if "got status" in text]
    assert "got status 412, code 216, 'Error in predictions' from http://127.0.0.1" in told
    assert said[-1].startswith("2 of 3 runs are on")
    states = [entry["state"] for entry in entries(tmp_path / "published.csv")]
    assert states == ["sending", "refused", "sending", "published", "sending", "published"]
    assert sorted(send()[0]) == list(desk.runs) == [101, 102, 103]


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (status(503), "got status 503 without a reason"),
        (slow(3.0), "got no whole answer within 0.8 seconds"),
        (trickle(0.1), "got no whole answer within 0.8 seconds"),
        (cut, "got no connection, or one that broke"),
        (HTML, "got an answer that is not OpenML's XML"),
    ],
)
def test_a_run_whose_answer_is_lost_is_found_again(desk, server, rows, send, change, part):
    server.fault(RUN, change, times=1)
    run_ids, said = send(rows[:1], timeout=0.8)
    assert run_ids == []
    assert part in said[-2]
    assert "whether it has arrived is asked for" in said[-2]
    run_ids, _ = send(rows[:1])
    assert run_ids == list(desk.runs) == [101]


def test_a_run_that_never_arrived_is_sent_again(desk, server, rows, send):
    take = server.routes["POST", RUN]
    server.routes["POST", RUN] = lambda _: status(502)(None)
    assert send(rows[:1])[0] == []
    server.routes["POST", RUN] = take
    assert send(rows[:1])[0] == list(desk.runs) == [101]


def test_a_run_is_not_sent_while_its_fate_is_unknown(desk, server, rows, send, tmp_path):
    server.fault(RUN, HTML, times=1)
    send(rows[:1])
    [ticket] = {entry["ticket"] for entry in entries(tmp_path / "published.csv")}
    server.fault(f"{API}/run/list/tag/{ticket}/show_errors/true", status(500), times=1)
    assert send(rows[:1])[0] == []
    assert len(desk.runs) == 1


def test_a_killed_publishing_goes_on(desk, server, rows, send, tmp_path):
    server.fault(RUN, slow(30.0), times=1)  # taken, and then no answer until it is killed
    path, ledger = tmp_path / "rows.pickle", tmp_path / "published.csv"
    rows = rows[:2]
    pd.to_pickle((choose(rows), rows), path)
    program = (
        "import pathlib, sys, pandas as pd\n"
        "from benchmarks._tabular.publish import publish\n"
        "chosen, rows = pd.read_pickle(sys.argv[2])\n"
        "publish(chosen, rows, server=sys.argv[1], ledger=pathlib.Path(sys.argv[3]))\n"
    )
    command = [sys.executable, "-c", program, server.url, str(path), str(ledger)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not desk.runs and time.monotonic() < deadline:
            time.sleep(0.05)
        process.kill()
    assert [entry["state"] for entry in entries(ledger)] == ["sending"]
    assert send(rows)[0] == list(desk.runs) == [101, 102]


def test_an_interrupt_ends_with_a_summary(desk, rows, tmp_path):
    said = []

    def say(text):
        said.append(text)
        if "it is run 101" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(choose(rows), rows, say=say, ledger=tmp_path / "published.csv")
    assert said[-1].startswith("1 of 3 runs are on")
    assert len(desk.runs) == 1


def test_an_interrupted_network_is_not_published(desk, rows, send, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(MixupENet, "train_step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        send(rows[:1])
    assert not desk.runs


def test_a_wrong_key_ends_it_at_once_and_is_not_shown(desk, server, send, tmp_path, capfd):
    wrong = "f" * 32
    server.fault(f"{API}/flow/exists", lambda _: error(103, f"No such key: {wrong}"))
    run_ids, said = send(api_key=wrong)
    assert run_ids == []
    assert not desk.runs
    assert sum("does not take the API key" in text for text in said) == 1
    assert server.counts[f"POST {API}/flow/exists"] == 1
    shown = [*said, (tmp_path / "published.csv").read_text(), *capfd.readouterr()]
    assert not any(wrong in text for text in shown)


def test_the_key_is_in_no_address_and_nowhere_but_in_requests(
    desk, server, rows, send, tmp_path, capfd, caplog
):
    _, said = send(rows[:1])
    assert KEY not in repr(Server("https://x/api/v1", KEY, 1.0))
    assert not any(KEY in repr((r.path, r.query, r.headers.items())) for r in server.requests)
    parts = [
        text
        for run in desk.runs.values()
        for name, text in run["text"].items()
        if name != "api_key"
    ]
    files = [p.read_bytes().decode(errors="replace") for p in tmp_path.rglob("*") if p.is_file()]
    assert not any(
        KEY in text for text in [*said, *parts, *files, *capfd.readouterr(), caplog.text]
    )


def test_a_missing_key_names_the_ways_out_before_anything_is_asked(server, send, monkeypatch):
    monkeypatch.delenv("OPENML_API_KEY")
    server.mend()
    with pytest.raises(ValueError, match="Got no API key .* OPENML_API_KEY, or run `openml conf"):
        send()
    assert not server.requests


@pytest.mark.parametrize("path", [f"{API}/nothing", f"{API}/flow/exists", RUN])
def test_the_configuration_is_put_back_as_found(desk, server, rows, send, path):
    before = openml.config.get_config_as_dict(), openml._api_calls._send_request
    server.fault(path, HTML)
    assert len(send(rows[:1])[0]) == (1 if path.endswith("nothing") else 0)
    assert (openml.config.get_config_as_dict(), openml._api_calls._send_request) == before


def test_the_users_cache_is_not_touched(desk, rows, send, tmp_path):
    assert send(rows[:1])[0] == [101]
    assert not (tmp_path / "cache").exists()


def test_other_data_than_the_rows_were_made_with_are_not_published(desk, data, send):
    rows = frame(row(data | {59: "0" * 12}), row(data, 60))
    run_ids, said = send(rows)
    assert len(run_ids) == len(desk.runs) == 1
    assert any("Got other data from the server than the rows were made with" in t for t in said)


def test_a_task_that_cannot_be_loaded_is_asked_for_once(desk, server, data, send):
    unknown = data | {77: "0" * 12}
    rows = frame(row(unknown, 77, "mixup", 1.0, None), row(unknown, 77), row(unknown))
    run_ids, said = send(rows)
    assert len(run_ids) == 1
    assert sum("it was not sent" in text for text in said) == 2
    assert server.counts[f"GET {API}/task/77"] == 1


def test_what_is_sent_is_told_before_anybody_is_asked(server, rows, data):
    server.mend()
    peer = row(data, method="logistic", alpha=None, eta=None)
    own = row(data, None) | {"dataset": "abalone"}
    rows = pd.concat([rows, frame(peer, own)], ignore_index=True)
    text = describe(choose(rows), rows)
    assert text.startswith(f"To {server.url}, under an API key")
    assert "task 59 (table-59), mixupe: method=mixupe, alpha=0.5, eta=0.1" in text
    assert "not sent: table-59, logistic: it is not of this package" in text
    assert "not sent: abalone, mixupe: it is no OpenML task" in text
    assert not server.requests


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_error": None}, "Got 0 kinds of finished fits of table-59, mixupe"),
        ({"params": '{"depth": 3}'}, "Got params with .'depth'. for table-59, mixupe"),
        ({"task_id": None}, "Got 1 results, none of which"),
        ({"method": "logistic"}, "Got 1 results, none of which"),
    ],
)
def test_results_that_cannot_be_published_are_refused(data, change, message):
    chosen = frame(row(data, **{k: v for k, v in change.items() if k in ("params",)}))
    for name in set(change) & {"task_id", "method"}:
        chosen[name] = change[name]
    with pytest.raises(ValueError, match=message):
        plan_of(chosen, frame(row(data) | change))


def test_columns_that_are_missing_are_named(rows):
    with pytest.raises(ValueError, match="Got chosen without the columns .'task_id'., but"):
        plan_of(rows.drop(columns="task_id"), rows)
