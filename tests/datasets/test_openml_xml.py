"""XML of a server that means harm: refused with a sentence, at once, and nothing else is read."""

import os
import pickle

import pytest
from openml_server import API, instead

from mixupe_sklearn.datasets._openml.metadata import (
    FaultError,
    parse_xml,
    read_n_rows,
    read_suite,
    read_task,
    without_parquet,
)
from mixupe_sklearn.datasets.openml import load_task

LAUGHS = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
SECRET = "file:///etc/hostname"
HOSTILE = {
    "billion laughs": f'<!DOCTYPE task [<!ENTITY a0 "ha">{LAUGHS}]><task>&a9;</task>',
    "quadratic": f'<!DOCTYPE task [<!ENTITY a "{"x" * 50_000}">]><task>{"&a;" * 5_000}</task>',
    "a file": f'<!DOCTYPE task [<!ENTITY a SYSTEM "{SECRET}">]><task>&a;</task>',
    "a parameter": f'<!DOCTYPE task [<!ENTITY % a SYSTEM "{SECRET}"> %a;]><task/>',
    "a document type": f'<!DOCTYPE task SYSTEM "{SECRET}"><task/>',
    "an attribute": '<!DOCTYPE task [<!ATTLIST task x CDATA "y">]><task/>',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_entities_and_document_types_are_refused(kind):
    with pytest.raises(FaultError, match=r"^XML that is not read for safety \(\w+Forbidden\("):
        parse_xml(HOSTILE[kind].encode(), "task")
    with pytest.raises(FaultError, match="not read for safety"):
        without_parquet(HOSTILE[kind].replace("task", "data_set_description").encode())


def test_the_five_entities_of_xml_itself_are_read():
    assert parse_xml(b"<task>&lt;&amp;&gt;&quot;&apos;&#65;</task>", "task").text == "<&>\"'A"


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_server_that_sends_such_xml_is_told_of_and_nothing_is_kept(kind, server, cache):
    server.fault(f"{API}/task/59", instead(HOSTILE[kind].encode()))
    sentence = r"cannot be fetched from .*XML that is not read for safety .*; tried once in"
    with pytest.raises(ConnectionError, match=sentence):
        load_task(59, cache_dir=cache, n_tries=1)
    assert not list(cache.rglob("*.xml"))


@pytest.mark.parametrize("number", ["²", "٣", "9" * 5_000, "../../x", "1\x00"])
def test_what_is_no_number_of_openmls_is_a_fault(number):
    task = f"<task><task_id>7</task_id><task_type_id>1</task_type_id>\
<input name='estimation_procedure'/><input name='source_data'><data_set>\
<data_set_id>{number}</data_set_id></data_set></input></task>"
    with pytest.raises(FaultError, match="its data set has the number|no whole XML"):
        read_task(task.encode(), 7)
    suite = f"<study><id>7</id><tasks><task_id>{number}</task_id></tasks></study>"
    with pytest.raises(FaultError, match="it lists no tasks|no whole XML"):
        read_suite(suite.encode(), 7)


@pytest.mark.parametrize("told", ["inf", "nan", "many", ""])
def test_a_number_of_rows_that_is_none_is_not_told(told):
    quality = f"<quality><name>NumberOfInstances</name><value>{told}</value></quality>"
    assert read_n_rows(f"<data_qualities>{quality}</data_qualities>".encode()) is None


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_pickles_in_the_cache_are_never_read(server, full, cache, tmp_path):
    """The client keeps pickles of what it has read beside it, and reads them again."""
    blown = tmp_path / "blown"
    for name in ("features.xml.pkl", "qualities.xml.pkl", "dataset_61.pkl.py3", "dataset.pkl.py3"):
        (full / "datasets" / "61" / name).write_bytes(pickle.dumps(Bomb(blown)))
    (full / "tasks" / "59" / "datasplits.pkl.py3").write_bytes(pickle.dumps(Bomb(blown)))
    assert load_task(59, cache_dir=cache).n_rows == 60
    assert not blown.exists()
    pickle.loads(pickle.dumps(Bomb(blown)))
    assert blown.exists()  # they would have done harm
