"""openml-python itself runs and publishes a pipeline with MixupEClassifier, as its users do it."""

import arff
import numpy as np
import openml
import pandas as pd
import pytest
import xmltodict
from openml_server import API, Answer, document, element
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from mixupe_sklearn import MixupEClassifier, make_mixupe_pipeline

KEY = "0123456789abcdef0123456789abcdef"


def make_pipeline_by_column_names():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = ColumnTransformer(
        [
            ("numbers", numbers, ["size", "count"]),
            ("categories", OneHotEncoder(handle_unknown="ignore"), ["colour"]),
        ],
        sparse_threshold=0.0,
    )
    classifier = MixupEClassifier(max_epochs=1, batch_size=20, random_state=0)
    return Pipeline([("columns", columns), ("classifier", classifier)])


def make_own_pipeline():
    return make_mixupe_pipeline(max_epochs=1, batch_size=20, random_state=0)


def add_server_fields(flow, flow_id=1):
    """Give a flow and its components ids and dates, as the server does."""
    flow |= {"oml:id": flow_id, "oml:uploader": 7, "oml:upload_date": "2030-01-01T00:00:00"}
    for component in flow.get("oml:component", ()):
        flow_id = add_server_fields(component["oml:flow"], flow_id + 1)
    return flow_id


@pytest.fixture
def uploads(server, tmp_path, monkeypatch):
    """The forms that the client posts, by their names. The client uses its own cache and a key."""
    monkeypatch.setattr(openml.config, "apikey", KEY)
    monkeypatch.setattr(openml.config, "_root_cache_directory", tmp_path)
    forms = {}

    def post_flow(request):
        forms["flow"] = request.form()
        flow = xmltodict.parse(forms["flow"]["description"], force_list=("oml:component",))
        add_server_fields(flow["oml:flow"])
        server.pages[f"{API}/flow/1"] = Answer(xmltodict.unparse(flow).encode())
        return document("upload_flow", element("id", 1))

    def post_run(request):
        forms["run"] = request.form()
        return document("upload_run", element("run_id", 101))

    def flow_exists(request):
        return document("flow_exists", element("exists", "false") + element("id", -1))

    routes = {"flow/": post_flow, "run/": post_run, "flow/exists": flow_exists}
    for path, route in routes.items():
        monkeypatch.setitem(server.routes, ("POST", f"{API}/{path}"), route)
    return forms


# The client does not close the file of splits.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("make", [make_pipeline_by_column_names, make_own_pipeline])
def test_openml_publishes_the_predictions_of_a_pipeline(server, uploads, make):
    task = openml.tasks.get_task(59)
    run = openml.runs.run_model_on_task(make(), task)
    run.publish()
    assert run.run_id == 101
    assert {form["api_key"].decode() for form in uploads.values()} == {KEY}
    assert b"mixupe_sklearn" in uploads["flow"]["description"]
    description = xmltodict.parse(uploads["run"]["description"])["oml:run"]
    settings = {p["oml:name"]: p["oml:value"] for p in description["oml:parameter_setting"]}
    assert settings["max_epochs"] == "1"
    predictions = arff.loads(uploads["run"]["predictions"].decode())
    names = [name for name, _ in predictions["attributes"]]
    sent = pd.DataFrame(predictions["data"], columns=names)
    X, y, *_ = task.get_dataset().get_data(target="class")
    for number, (train, test) in enumerate(server.folds[59]):
        repeat, fold = divmod(number, 3)
        rows = sent[(sent["repeat"] == repeat) & (sent["fold"] == fold)]
        local = make().fit(X.iloc[train], y.iloc[train])
        assert rows["row_id"].tolist() == test.tolist()
        assert rows["prediction"].tolist() == local.predict(X.iloc[test]).tolist()
        proba = local.predict_proba(X.iloc[test])
        np.testing.assert_allclose(rows[["confidence.no", "confidence.yes"]], proba, atol=1e-6)
