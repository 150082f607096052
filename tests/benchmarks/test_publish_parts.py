"""The parts of publishing that need no server: what is sent, flows, keys, and the ledger."""

import socket

import openml
import pytest
import xmltodict
from openml.extensions.sklearn import SklearnExtension
from openml_desk import frame, row
from paper import paper_classifier

from benchmarks._tabular.publish import check_publishing
from benchmarks._tabular.publish.ledger import Ledger
from benchmarks._tabular.publish.runs import make_flow
from benchmarks._tabular.publish.sending import submissions_of
from benchmarks._tabular.publish.server import find_key
from benchmarks._tabular.report.results import choose
from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline


def test_the_classifier_is_a_flow_of_its_parameters():
    classifier = paper_classifier(alpha=0.7, module_params={"d_hidden": [8, 8]}, random_state=1)
    extension = SklearnExtension()
    flow = extension.model_to_flow(classifier)
    assert set(flow.parameters) == set(classifier.get_params())
    assert extension.flow_to_model(flow).get_params() == classifier.get_params()


def test_the_pipeline_is_a_flow_that_can_be_turned_back():
    flow = make_flow()
    assert set(flow.parameters) == set(paper_classifier().get_params())
    again = openml.OpenMLFlow._from_dict(xmltodict.parse(flow._to_xml()))
    pipeline = SklearnExtension().flow_to_model(again)
    alpha = list(MixupEClassifier().alpha)  # JSON has no tuples
    assert repr(pipeline) == repr(make_mixupe_pipeline(alpha=alpha))


def test_the_configured_key_is_for_the_configured_server_only(monkeypatch):
    monkeypatch.delenv("OPENML_API_KEY", raising=False)
    monkeypatch.setattr(openml.config, "server", "https://www.openml.org/api/v1/xml")
    monkeypatch.setattr(openml.config, "apikey", "mine")
    assert find_key(None, openml.config.server) == ("mine", "from openml's configuration")
    with pytest.raises(ValueError, match="Got no API key for https://elsewhere"):
        find_key(None, "https://elsewhere.org/api/v1/xml")


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("Somebody was asked.")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize("url", ["http://www.openml.org/api/v1/xml", "https://openml.org", "here"])
def test_a_server_that_would_leak_the_key_or_is_none_is_refused(url, no_network):
    with pytest.raises(ValueError, match=f"Got server='{url}', but expected .* https"):
        check_publishing(url, "mine")


def test_a_missing_key_is_told_without_asking_anybody(monkeypatch, no_network):
    url = "https://test.openml.org/api/v1/xml"
    monkeypatch.setattr(openml.config, "apikey", "")
    monkeypatch.delenv("OPENML_API_KEY", raising=False)
    for server in (url, None):
        with pytest.raises(ValueError, match="Got no API key for https://.* OPENML_API_KEY"):
            check_publishing(server)
    check_publishing(url, "mine")
    monkeypatch.setenv("OPENML_API_KEY", "mine")
    check_publishing(url)
    check_publishing()


def test_each_method_is_sent_once_for_a_task_as_chosen_on_its_own_splits():
    numbers = {"erm": (None, None), "mixup": (0.5, None), "mixupe": (0.5, 0.1)}
    holdout = [row(method=name, alpha=a, eta=e) for name, (a, e) in numbers.items()]
    own = [row(method="mixup", alpha=2.0, eta=None), row(alpha=2.0)]
    own = [values | {"splits": "task 59", "seed": 0} for values in own]
    rows = frame(*holdout, *own)
    chosen = choose(rows)
    assert len(chosen) == 5
    for order in (1, -1):
        submissions, left_out = submissions_of(chosen[::order], rows)
        found = {item.method: item.params for item in submissions}
        assert len(submissions) == len(found) == 3
        assert (found["mixup"]["alpha"], found["mixupe"]["alpha"]) == (2.0, 2.0)
        assert [found[name]["random_state"] for name in numbers] == [3, 0, 0]
        assert sorted(left_out) == [
            f"table-59, {name}, chosen on holdout splits: another choice is sent"
            for name in ("mixup", "mixupe")
        ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"test_error": None}, "Got no finished fit of table-59, mixupe with alpha=0.5 and"),
        ({"params": '{"depth": 3}'}, "Got params with .'depth'. for table-59, mixupe"),
        ({"task_id": None}, "Got 1 results, none of which"),
        ({"method": "logistic"}, "Got 1 results, none of which"),
    ],
)
def test_results_that_cannot_be_published_are_refused(change, message):
    rows = frame(row(**change))
    with pytest.raises(ValueError, match=message):
        submissions_of(rows, rows)


def test_columns_that_are_missing_are_named():
    rows = frame(row())
    with pytest.raises(ValueError, match="Got chosen without the columns .'task_id'., but"):
        submissions_of(rows.drop(columns="task_id"), rows)
    with pytest.raises(ValueError, match="Got rows without the columns .'seed'., but"):
        submissions_of(rows, rows.drop(columns="seed"))


ENTRY = {"server": "s", "task_id": 1, "version": "1", "params": '{"a": "b, c"}', "run_id": 5}


def last_of(path, **changes):
    with Ledger(path) as ledger:
        return ledger.last(ENTRY | changes)


def test_the_last_line_about_a_run_counts_and_a_version_is_another_run(tmp_path):
    path = tmp_path / "new" / "published.csv"
    with Ledger(path) as ledger:
        assert ledger.last(ENTRY) is None
        ledger.add(**ENTRY, state="sending")
        ledger.add(**ENTRY, state="published", note="two\nlines")
    entry = last_of(path)
    assert (entry["state"], entry["note"], entry["run_id"]) == ("published", "two lines", "5")
    assert last_of(path, version="2") is None


def test_a_torn_line_of_the_ledger_is_cut_off(tmp_path):
    path = tmp_path / "published.csv"
    with Ledger(path) as ledger:
        ledger.add(**ENTRY, state="published")
    whole = path.read_bytes()
    path.write_bytes(whole + b"2026-01-01T00:00:00,s,2,tab")
    with pytest.warns(UserWarning, match="ended in the middle of a row"):
        assert last_of(path)["run_id"] == "5"
    assert path.read_bytes() == whole


def test_a_file_that_is_no_ledger_is_left_alone(tmp_path):
    path = tmp_path / "published.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="published.csv with the columns 'a,b'"), Ledger(path):
        pass
    assert path.read_text() == "a,b\n1,2\n"


def test_two_processes_do_not_share_a_ledger(tmp_path):
    path = tmp_path / "published.csv"
    with Ledger(path), pytest.raises(ValueError, match="another run is writing"), Ledger(path):
        pass
