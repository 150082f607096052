"""The parts of publishing that need no server: flows, keys, addresses, and the ledger."""

import openml
import pytest
import xmltodict
from openml.extensions.sklearn import SklearnExtension

from benchmarks._tabular.publish.ledger import COLUMNS, Ledger
from benchmarks._tabular.publish.runs import make_flow
from benchmarks._tabular.publish.server import checked_address, find_key
from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline


def test_the_classifier_is_a_flow_of_its_parameters():
    classifier = MixupEClassifier(alpha=0.7, module_params={"d_hidden": [8, 8]}, random_state=1)
    extension = SklearnExtension()
    flow = extension.model_to_flow(classifier)
    assert set(flow.parameters) == set(classifier.get_params())
    assert extension.flow_to_model(flow).get_params() == classifier.get_params()


def test_the_pipeline_is_a_flow_that_can_be_turned_back():
    flow = make_flow()
    assert set(flow.parameters) == set(MixupEClassifier().get_params())
    again = openml.OpenMLFlow._from_dict(xmltodict.parse(flow._to_xml()))
    pipeline = SklearnExtension().flow_to_model(again)
    assert repr(pipeline) == repr(make_mixupe_pipeline())


def test_the_configured_key_is_for_the_configured_server_only(monkeypatch):
    monkeypatch.delenv("OPENML_API_KEY", raising=False)
    monkeypatch.setattr(openml.config, "server", "https://www.openml.org/api/v1/xml")
    monkeypatch.setattr(openml.config, "apikey", "mine")
    assert find_key(None, openml.config.server) == ("mine", "from openml's configuration")
    with pytest.raises(ValueError, match="Got no API key for https://elsewhere"):
        find_key(None, "https://elsewhere.org/api/v1/xml")


@pytest.mark.parametrize("url", ["http://www.openml.org/api/v1/xml", "https://openml.org", "here"])
def test_a_server_that_would_leak_the_key_or_is_none_is_refused(url):
    with pytest.raises(ValueError, match=f"Got server='{url}', but expected .* https"):
        checked_address(url)


def test_a_torn_line_of_the_ledger_is_cut_off(tmp_path):
    path = tmp_path / "published.csv"
    entry = {"server": "s", "task_id": 1, "params": "{}", "state": "published", "run_id": 5}
    with Ledger(path) as ledger:
        ledger.add(**entry)
    whole = path.read_bytes()
    path.write_bytes(whole + b"2026-01-01T00:00:00,s,2,tab")
    with Ledger(path) as ledger:
        assert ledger.last(entry)["run_id"] == "5"
        assert path.read_bytes() == whole


def test_a_file_that_is_no_ledger_is_left_alone(tmp_path):
    path = tmp_path / "published.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="which is no ledger of this program"), Ledger(path):
        pass
    assert path.read_text() == "a,b\n1,2\n"


def test_two_processes_do_not_share_a_ledger(tmp_path):
    path = tmp_path / "published.csv"
    with Ledger(path), pytest.raises(ValueError, match="another process is writing"), Ledger(path):
        pass
    assert path.read_text().split() == [",".join(COLUMNS)]
