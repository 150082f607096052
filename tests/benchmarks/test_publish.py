"""Publishing: the real client and a real server on loopback; nothing twice, no key in sight."""

import csv
import json
import resource
import subprocess
import sys
import time

import numpy as np
import openml
import pandas as pd
import pytest
import xmltodict
from openml_desk import KEY, TRAINING, Desk, frame, refold, row
from openml_server import API, HTML, OpenMLServer, cut, error, slow, status, trickle
from paper import paper_classifier

from benchmarks._tabular.publish import publish
from benchmarks._tabular.publish.ledger import COLUMNS
from benchmarks._tabular.publish.runs import Task, make_flow, predict_folds
from benchmarks._tabular.publish.server import Server
from benchmarks._tabular.report.results import choose
from mixupe_sklearn import MixupENet, make_mixupe_pipeline, preset
from mixupe_sklearn.datasets.openml import load_task

RUN = f"{API}/run/"


@pytest.fixture
def server():
    with OpenMLServer() as server:
        for number in (59, 60):
            refold(server, number, 1, 2)
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


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The tasks' tables, which are the same on each server; their folds are not."""
    with OpenMLServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr(openml.config, "server", server.url)
        cache = tmp_path_factory.mktemp("cache")
        return {number: load_task(number, cache_dir=cache) for number in (59, 60)}


@pytest.fixture
def data(tables):
    """Fingerprints of the tasks' tables."""
    return {number: table.fingerprint for number, table in tables.items()}


@pytest.fixture
def rows(data):
    """Two methods on one task, one on another."""
    erm = row(data[59], method="erm", alpha=None, eta=None)
    return frame(row(data[59]), erm, row(data[60], 60, "mixup", 1.0, None))


@pytest.fixture
def send(rows, tmp_path):
    """Publish what is chosen from the rows: run numbers, and all that was said."""

    def call(rows=rows, **options):
        said = []
        ledger = options.pop("ledger", tmp_path / "published.csv")
        options = {"timeout": 5.0} | options
        sent = publish(choose(rows), rows, say=said.append, ledger=ledger, **options)
        assert sent.is_complete == ("the same command again" not in said[-1])
        assert f"{len(sent.run_ids)} of {sent.n_planned} runs are on" in said[-1]
        return sent.run_ids, said

    return call


def entries(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def settings_of(run):
    pairs = run["description"]["oml:parameter_setting"]
    return {pair["oml:name"]: json.loads(pair["oml:value"]) for pair in pairs}


def test_the_server_holds_what_a_local_run_predicts(desk, server, rows, send, tables):
    refold(server, 59, 2, 2)
    run_ids, _ = send(rows[:1])
    assert run_ids == [101]
    table, run = tables[59], desk.runs[101]
    names = [name for name, _ in run["predictions"]["attributes"]]
    sent = pd.DataFrame(run["predictions"]["data"], columns=names)
    assert len(sent) == sum(len(test) for _, test in server.folds[59]) == 120
    told = {
        (int(e["@repeat"]), int(e["@fold"])): float(e["oml:value"])
        for e in run["description"]["oml:output_data"]["oml:evaluation"]
    }
    for number, (train, test) in enumerate(server.folds[59]):
        where = divmod(number, 2)
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
    expected = paper_classifier(
        method="mixupe", alpha=0.5, eta=0.1, random_state=3, device="cpu", **TRAINING
    )
    by_method = {settings_of(run)["method"]: run for run in desk.runs.values()}
    assert settings_of(by_method["mixupe"]) == expected.get_params()
    assert settings_of(by_method["erm"])["alpha"] == paper_classifier().alpha
    assert "torch" in by_method["mixupe"]["description"]["oml:setup_string"]
    assert len(desk.flows) == 1


def test_a_class_without_rows_has_no_probability(tables):
    task = Task(tables[60], ["never", "no", "yes"], n_folds=5)
    lines, _ = predict_folds(task, preset("paper") | TRAINING | {"random_state": 0})
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
        while not desk.runs and process.poll() is None and time.monotonic() < deadline:
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

    monkeypatch.setattr(MixupENet, "run_single_epoch", interrupt)
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
    assert not (tmp_path / "published.csv").exists()
    assert not any(wrong in text for text in [*said, *capfd.readouterr()])


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
    rows = frame(row("0" * 12), row(data[60], 60))
    run_ids, said = send(rows)
    assert len(run_ids) == len(desk.runs) == 1
    assert any("Got other data from the server than the rows were made with" in t for t in said)


def test_a_task_that_cannot_be_loaded_is_asked_for_once(desk, server, data, send):
    unknown = [row(task_id=77, method="mixup", alpha=1.0, eta=None), row(task_id=77)]
    rows = frame(*unknown, row(data[59]))
    run_ids, said = send(rows)
    assert len(run_ids) == 1
    assert sum("it was not sent" in text for text in said) == 2
    assert server.counts[f"GET {API}/task/77"] == 1


def test_what_is_sent_is_told_before_anybody_is_asked(desk, server, rows, tmp_path):
    server.mend()
    peer = row(method="logistic", alpha=None, eta=None, data=rows["data"][0])
    rows = frame(*rows.to_dict("records"), peer, row(task_id=None, dataset="abalone"))

    def say(text):
        assert not server.requests
        assert text.startswith(f"To {server.url}, under an API key (from OPENML_API_KEY)")
        assert "task 59 (table-59), mixupe: method=mixupe, alpha=0.5, eta=0.1" in text
        assert "not sent: table-59, logistic: it is not of this package" in text
        assert "not sent: abalone, mixupe: it is no OpenML task" in text
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(choose(rows), rows, say=say, ledger=tmp_path / "published.csv")


def test_a_new_version_of_the_package_is_published_as_well(desk, rows, send, monkeypatch):
    first, _ = send(rows[:1])
    monkeypatch.setattr("benchmarks._tabular.publish.sending.__version__", "9.9")
    assert send(rows[:1])[0] == send(rows[:1])[0] == [102]
    monkeypatch.undo()
    assert first == [101]


def test_what_was_chosen_on_several_kinds_of_splits_is_sent_once(desk, rows, send):
    on_folds = rows.assign(splits=[f"task {number}" for number in rows["task_id"]])
    run_ids, _ = send(pd.concat([rows, on_folds], ignore_index=True))
    assert len(run_ids) == len(desk.runs) == 3


def test_a_full_disk_ends_it_before_anything_is_sent(desk, rows, send, tmp_path):
    """A limit on the size of files stands in for the end of a disk: the write fails half-way."""
    path = tmp_path / "published.csv"
    line = ",".join(["x" * 100] * len(COLUMNS)) + "\n"
    path.write_text(",".join(COLUMNS) + "\n" + line * 1000)  # larger than all other files
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="Got no room for a row in .*published.csv"):
            send(rows[:2])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not desk.runs
    assert path.read_bytes() == before
    assert send(rows[:2])[0] == [101, 102]
