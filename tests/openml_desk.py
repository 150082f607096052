"""The writing half of the small OpenML server: it takes flows and runs, and checks them.

with OpenMLServer() as server:
    desk = Desk(server)

And rows of finished fits that may be published there.
"""

import json
import re

import arff
import pandas as pd
import xmltodict
from openml_server import (
    API,
    Answer,
    OpenMLServer,
    Request,
    error,
    make_folds,
    splits_path,
    task_of,
    to_splits,
)

from benchmarks._tabular.rows import COLUMNS

KEY = "0123456789abcdef0123456789abcdef"
NAMESPACE = "http://openml.org/openml"
DATA_OF = {59: 61, 60: 62}
TRAINING = {"max_epochs": 1, "batch_size": 20}


def refold(server: OpenMLServer, number: int, n_repeats: int, n_folds: int) -> None:
    """Give a task other folds: each one is a network to be trained."""
    n = n_repeats, n_folds
    folds = server.folds[number] = make_folds(60, *n)
    server.pages[f"{API}/task/{number}"] = task_of(server, number, DATA_OF[number], "1", n)
    server.pages[splits_path(number)] = Answer(to_splits(folds, n_folds), kind="text/plain")


def row(data="0" * 12, task_id=59, method="mixupe", alpha=0.5, eta=0.1, **others):
    """A finished fit."""
    values = dict.fromkeys(COLUMNS) | {
        "source": "openml", "dataset": f"table-{task_id}", "task_id": task_id,
        "data_id": DATA_OF.get(task_id), "data": data, "n_rows": 60,
        "n_features": 3, "n_classes": 2, "splits": "holdout", "split": 0, "seed": 3,
        "method": method, "alpha": alpha, "eta": eta, "params": json.dumps(TRAINING),
        "grid": "paper", "n_together": 1, "train_losses": "1 0.5", "test_losses": "1 0.6",
        "error": "", "versions": "-", "commit": "-", "run": "2026-01-01T00:00:00",
    }  # fmt: skip
    measured = ("valid_", "test_error", "test_log", "test_b", "test_e", "fit_s", "predict_s")
    metrics = [name for name in COLUMNS if name.startswith(measured)]
    return values | dict.fromkeys(metrics, 0.25) | others


def frame(*rows):
    return pd.DataFrame(list(rows), columns=list(COLUMNS))


def document(name, values) -> Answer:
    content = {"@xmlns:oml": NAMESPACE} | {f"oml:{key}": value for key, value in values.items()}
    return Answer(xmltodict.unparse({f"oml:{name}": content}).encode())


class Desk:
    """Flows (as XML) and runs (taken apart) that a server has got, by their numbers."""

    def __init__(self, server: OpenMLServer):
        self.flows: dict[int, str] = {}
        self.runs: dict[int, dict] = {}
        for path, take in (
            ("flow/exists", self._find_flow),
            ("flow/", self._take_flow),
            ("run/", self._take_run),
        ):
            server.routes["POST", f"{API}/{path}"] = self._for_members(take)
        for path in ("flow/", "run/", "/setup/"):  # the client asks for setups with two slashes
            server.routes["GET", f"{API}/{path}"] = self._show

    def _for_members(self, take):
        def route(request: Request) -> Answer:
            form = {name: value.decode() for name, value in request.form().items()}
            if not form.get("api_key"):
                return error(102, "Please provide API key")
            if form["api_key"] != KEY:
                return error(103, "Authentication failed")
            return take(form)

        return route

    def _find_flow(self, form) -> Answer:
        for number, text in self.flows.items():
            flow = xmltodict.parse(text)["oml:flow"]
            if all(flow[f"oml:{name}"] == form[name] for name in ("name", "external_version")):
                return document("flow_exists", {"exists": "true", "id": number})
        return document("flow_exists", {"exists": "false", "id": -1})

    def _take_flow(self, form) -> Answer:
        flow = xmltodict.parse(form["description"])["oml:flow"]
        number = len(self.flows) + 1
        added = {"id": number, "uploader": 7, "version": 1, "upload_date": "2030-01-01T00:00:00"}
        flow |= {f"oml:{name}": value for name, value in added.items()}
        self.flows[number] = xmltodict.unparse({"oml:flow": flow})
        return document("upload_flow", {"id": number})

    def _take_run(self, form) -> Answer:
        run = xmltodict.parse(form["description"], force_list=("oml:evaluation",))["oml:run"]
        if int(run["oml:flow_id"]) not in self.flows:
            return error(203, "Unknown flow")
        flow = xmltodict.parse(self.flows[int(run["oml:flow_id"])])["oml:flow"]
        known = {parameter["oml:name"] for parameter in flow["oml:parameter"]}
        if {setting["oml:name"] for setting in run["oml:parameter_setting"]} != known:
            return error(213, "The parameters are not those of the flow")
        number = len(self.runs) + 101
        predictions = arff.loads(form["predictions"])
        self.runs[number] = {"description": run, "predictions": predictions, "text": form}
        return document("upload_run", {"run_id": number})

    def _show(self, request: Request) -> Answer:
        path = request.path.removeprefix(API).replace("//", "/")
        if match := re.fullmatch(r"/run/list/tag/([\w-]+)/show_errors/true", path):
            return self._tagged(match[1])
        kind, number = re.fullmatch(r"/(flow|run|setup)/(\d+)", path).groups()
        if kind == "flow":
            return Answer(self.flows[int(number)].encode())
        return (self._run if kind == "run" else self._setup)(int(number))

    def _tagged(self, tag: str) -> Answer:
        numbers = [n for n, run in self.runs.items() if tag in run["description"]["oml:tag"]]
        if not numbers:
            return error(512, "No results")
        return document("runs", {"run": [{"oml:run_id": number} for number in numbers]})

    def _run(self, number: int) -> Answer:
        run = self.runs[number]["description"]
        names = ("description", "predictions")
        files = [{"oml:name": name, "oml:file_id": 1, "oml:url": "-"} for name in names]
        added = {"run_id": number, "setup_id": number, "uploader": 7, "uploader_name": "me"}
        added |= {"task_type": "Supervised Classification", "flow_name": "-"}
        added |= {"input_data": {"oml:dataset": {"oml:did": 61}}}
        added |= {"output_data": run["oml:output_data"] | {"oml:file": files}}
        content = run | {f"oml:{name}": value for name, value in added.items()}
        return Answer(xmltodict.unparse({"oml:run": content}).encode())

    def _setup(self, number: int) -> Answer:
        """The parameters of a run; here its setup has the run's own number."""
        run = self.runs[number]["description"]
        rest = ("flow_name", "full_name", "data_type", "default_value")
        parameters = [
            {
                "oml:id": position,
                "oml:flow_id": setting["oml:component"],
                "oml:parameter_name": setting["oml:name"],
                "oml:value": setting["oml:value"],
            }
            | {f"oml:{name}": "-" for name in rest}
            for position, setting in enumerate(run["oml:parameter_setting"])
        ]
        values = {"setup_id": number, "flow_id": run["oml:flow_id"], "parameter": parameters}
        return document("setup_parameters", values)
