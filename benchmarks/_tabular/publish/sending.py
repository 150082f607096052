"""Send finished runs to an OpenML server: never unasked, and nothing twice.

A row of the benchmark holds figures, while a run on OpenML holds a prediction for each test row of
the task's own folds. So each chosen configuration is trained anew on these folds, and what it
predicts is sent, with its parameters.
"""

import json
import pathlib
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from benchmarks._tabular.own import OWN
from benchmarks._tabular.protocol import METHODS, Config
from benchmarks._tabular.publish.ledger import Ledger, LedgerError
from benchmarks._tabular.publish.runs import (
    FLOW_NAME,
    Task,
    fetch_task,
    make_flow,
    make_run,
    publish_flow,
    publish_run,
)
from benchmarks._tabular.publish.server import (
    Refused,
    Server,
    checked_address,
    find_key,
    openml_settings,
)
from mixupe_sklearn import MixupEClassifier, __version__, preset

FIT = ("dataset", "data", "splits", "method", "alpha", "eta", "params")
CHOSEN_COLUMNS = (*FIT, "task_id")
ROWS_COLUMNS = (*FIT, "seed", "test_error")
TIMEOUT = 60.0


@dataclass(frozen=True)
class Submission:
    """One run to be sent: a task, the classifier's parameters, and the data that they suit."""

    dataset: str
    task_id: int
    method: str
    params: Mapping[str, Any]
    data: str

    @property
    def title(self) -> str:
        """What a message calls it."""
        return f"task {self.task_id} ({self.dataset}), {self.method}"

    @property
    def values(self) -> dict[str, Any]:
        """What the ledger says of it."""
        params = json.dumps(self.params, sort_keys=True)
        names = ("dataset", "task_id", "method")
        own = {name: getattr(self, name) for name in names}
        return own | {"version": __version__, "params": params}


@dataclass(frozen=True)
class Sent:
    """Numbers of the runs that are on the server now, and how many were to be there."""

    run_ids: Sequence[int]
    n_planned: int

    @property
    def is_complete(self) -> bool:
        """Whether all of them are there."""
        return len(self.run_ids) == self.n_planned


def submissions_of(chosen: pd.DataFrame, rows: pd.DataFrame) -> tuple[list[Submission], list[str]]:
    """Check what is to be sent, without asking anybody.

    Parameters
    ----------
    chosen : pandas.DataFrame
        One row for each data set and method, with the alpha and eta that were chosen. Of several
        on one task, that of the task's own splits is sent, else the last.
    rows : pandas.DataFrame
        The rows of the fits. A configuration without a finished one is refused.

    Returns
    -------
    submissions : list of Submission
        Runs to be sent, one at most for each task and method.
    left_out : list of str
        A line for each that is not.
    """
    _check_columns(chosen, rows)
    found: dict[tuple[int, str], Mapping[str, Any]] = {}
    left_out = []
    # False comes before True, so that the task's own splits replace others.
    ordered = chosen.sort_values(
        "splits", key=lambda names: names.str.startswith("task"), kind="stable"
    )
    for choice in ordered.to_dict("records"):
        where = f"{choice['dataset']}, {choice['method']}"
        if pd.isna(choice["task_id"]):
            left_out.append(f"{where}: it is no OpenML task")
        elif choice["method"] in OWN:
            left_out.append(f"{where}: only the paper's methods are sent")
        elif choice["method"] not in METHODS:
            left_out.append(f"{where}: it is not of this package")
        else:
            key = int(choice["task_id"]), choice["method"]
            if key in found:
                splits = found[key]["splits"]
                left_out.append(f"{where}, chosen on {splits} splits: another choice is sent")
            found[key] = choice
    if not found:
        raise ValueError(
            f"Got {len(chosen)} results, none of which is one of this package's methods on an "
            f"OpenML task, but expected one at least: run the benchmark with --source openml."
        )
    return [_submission(choice, rows) for choice in found.values()], left_out


def _check_columns(chosen: pd.DataFrame, rows: pd.DataFrame) -> None:
    for what, frame, names in (("chosen", chosen, CHOSEN_COLUMNS), ("rows", rows, ROWS_COLUMNS)):
        missing = [name for name in names if name not in frame.columns]
        if missing:
            raise ValueError(f"Got {what} without the columns {missing}, but expected them.")


def _submission(choice: Mapping[str, Any], rows: pd.DataFrame) -> Submission:
    found = rows[rows["test_error"].notna()]
    for name in FIT:
        value = choice[name]
        found = found[found[name].isna() if pd.isna(value) else found[name] == value]
    where = f"{choice['dataset']}, {choice['method']}"
    if found.empty:
        raise ValueError(
            f"Got no finished fit of {where} with alpha={choice['alpha']} and "
            f"eta={choice['eta']}, but expected the rows that it was chosen from."
        )
    numbers = {k: None if pd.isna(choice[k]) else float(choice[k]) for k in ("alpha", "eta")}
    params = Config(choice["method"], **numbers).params | json.loads(choice["params"])
    # The rest is the paper's; its network is the one that its name alone stands for.
    paper = preset("paper").items()
    params |= {k: v for k, v in paper if k not in params and k != "module_params"}
    params |= {"random_state": int(found["seed"].min()), "device": "cpu"}
    unknown = sorted(set(params) - set(MixupEClassifier().get_params()))
    if unknown:
        raise ValueError(f"Got params with {unknown} for {where}, but expected the classifier's.")
    task_id = int(choice["task_id"])
    return Submission(choice["dataset"], task_id, choice["method"], params, choice["data"])


def _described(
    submissions: Sequence[Submission], left_out: Sequence[str], url: str, key_origin: str
) -> str:
    """What will be sent, and where to, in words."""
    lines = [
        f"To {url}, under an API key ({key_origin}), for everybody to see, go:",
        f"- the flow {FLOW_NAME} ({make_flow().external_version}), that is names, defaults and "
        f"descriptions of its parameters, if it is not there yet;",
        "- for each run below its parameters, the versions of Python and of the libraries, the "
        "accuracy in each fold, and for each test row of the task's own folds the class that is "
        "predicted, the true one, and the probabilities.",
        "Nothing else of the results or of this computer is sent. Each run is trained anew for it, "
        "with an alpha and eta that were chosen on the benchmark's splits of the same data.",
    ]
    for item in submissions:
        shown = ", ".join(f"{name}={value}" for name, value in item.params.items())
        lines.append(f"  {item.title}: {shown}")
    lines += [f"  not sent: {reason}" for reason in left_out]
    return "\n".join(lines)


@dataclass(eq=False)
class Publisher:
    """Sends one run after the other; keeps the flow, and the task that was used last."""

    server: Server
    ledger: Ledger
    cache: str
    _flow: Any = None
    _tasks: dict[int, Task | Exception] = field(default_factory=dict)

    def publish(self, item: Submission) -> int:
        """Number of a run, which is sent unless the ledger or the server has it."""
        values = {"server": self.server.url, **item.values}
        last = self.ledger.last(values) or {}
        if last.get("state") == "published":
            return int(last["run_id"])
        values["ticket"] = last.get("ticket") or f"mixupe-{secrets.token_hex(8)}"
        values["flow_id"] = last.get("flow_id", "")
        is_lost = last.get("state") == "sending"
        run_id = self.server.find_run(values["ticket"]) if is_lost else None
        if run_id is None:
            run_id = self._send(item, values)
        self.ledger.add(**values, state="published", run_id=run_id)
        return run_id

    def _send(self, item: Submission, values: dict[str, Any]) -> int:
        # First what is quick: a server that does not take the flow will not take the run.
        flow = self._flow = self._flow or publish_flow(self.server)
        task = self._task(item)
        run = make_run(task, item.params, flow, values["ticket"])
        values["flow_id"] = flow.flow_id
        self.ledger.add(**values, state="sending")
        try:
            return publish_run(self.server, run)
        except Refused as refused:
            if refused.is_sure:
                note = self.server.without_key(str(refused))
                self.ledger.add(**values, state="refused", note=note)
            raise

    def _task(self, item: Submission) -> Task:
        """The task of a run; one that cannot be loaded is not asked for again."""
        if item.task_id not in self._tasks:
            self._tasks.clear()  # one table at a time
            try:
                self._tasks[item.task_id] = fetch_task(self.server, item.task_id, self.cache)
            except Exception as error:
                self._tasks[item.task_id] = error
        task = self._tasks[item.task_id]
        if isinstance(task, Exception):
            raise task
        if task.table.fingerprint != item.data:
            raise ValueError(
                f"Got other data from the server than the rows were made with (fingerprints "
                f"{task.table.fingerprint} and {item.data}), but expected the same"
            )
        return task


def publish(
    chosen: pd.DataFrame,
    rows: pd.DataFrame,
    *,
    server: str | None = None,
    api_key: str | None = None,
    say: Callable[[str], Any] = print,
    ledger: pathlib.Path,
    timeout: float = TIMEOUT,
) -> Sent:
    """Train what was chosen on the tasks' own folds, and send the predictions to a server.

    A run that cannot be sent gets one sentence, and the others go on; a refused key ends it, since
    all others would be trained in vain, and so does a disk without room for the ledger. The same
    call again sends what is left.

    Parameters
    ----------
    chosen, rows : pandas.DataFrame
        What to send; see :func:`submissions_of`.
    server : str or None, default=None
        Address of the server's interface; None is the one in openml's configuration.
    api_key : str or None, default=None
        The user's key; None looks into the environment, then into openml's configuration.
    say : callable, default=print
        Gets each message.
    ledger : pathlib.Path
        The file that keeps account of what was sent.
    timeout : float, default=60
        Seconds to wait for each answer.

    Returns
    -------
    sent : Sent
        Numbers of the chosen runs that are on the server now, or have been before; its
        ``is_complete`` says whether these are all.
    """
    submissions, left_out = submissions_of(chosen, rows)
    url = checked_address(server)
    key, origin = find_key(api_key, url)
    say(_described(submissions, left_out, url, origin))
    with (
        Ledger(ledger) as book,
        tempfile.TemporaryDirectory() as cache,
        openml_settings(url, cache),
    ):
        publisher = Publisher(Server(url, key, timeout), book, cache)
        return _publish_all(submissions, publisher, say)


def _publish_all(
    submissions: Sequence[Submission], publisher: Publisher, say: Callable[[str], Any]
) -> Sent:
    run_ids: list[int] = []
    n_all = len(submissions)
    try:
        for item in submissions:
            try:
                run_ids.append(publisher.publish(item))
                say(f"{item.title}: it is run {run_ids[-1]}.")
            except Refused as refused:
                say(_refused_sentence(item, publisher.server, refused))
                if refused.is_key:
                    break
            except LedgerError:
                raise  # what is sent now would be sent again
            except Exception as error:
                told = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
                say(publisher.server.without_key(f"{item.title}: it was not sent ({told})."))
    finally:  # after an interrupt as well
        way_out = "" if len(run_ids) == n_all else "; the same command again sends the others"
        say(f"{len(run_ids)} of {n_all} runs are on {publisher.server.url}{way_out}.")
    return Sent(run_ids, n_all)


def _refused_sentence(item: Submission, server: Server, refused: Refused) -> str:
    advice = ""
    if refused.is_key:
        advice = ": it does not take the API key, so that the others are not tried"
    elif not refused.is_sure:
        advice = ": whether it has arrived is asked for when the same command is run again"
    text = f"{item.title}: got {refused} from {server.url}, but expected to be taken{advice}."
    return server.without_key(text)
