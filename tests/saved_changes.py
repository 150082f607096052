"""Random changes of the structure of saved files, each signed anew, then loaded and used.

The result must be an error, or a model that predicts, trains and can be saved, within a bounded
memory and time, and without a signal. ``python tests/saved_changes.py --changes 2000`` does it for
each kind of model and prints a table; it takes hours on one core.
"""

import argparse
import collections
import contextlib
import copy
import io
import json
import os
import pathlib
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import warnings

import numpy as np
from saved_models import MAKERS, TRUSTED, output

from mixupe_sklearn import load, save
from mixupe_sklearn._persistence import file_format
from mixupe_sklearn._persistence.schemas import SCHEMAS

# Bytes that a change may take, beyond four times the size of its file, and seconds.
SPARE, SECONDS = 64 * 2**20, 30
VALUES = (
    *(None, True, False, 0, 1, -1, 3, 10**6, 2**31, 2**63, -(2**64), 0.5, -1.0, 1e-30, 1e308),
    *("", "a", "C", "F", "auto", "cuda", "O", "U5", "<f8", "\x1b[31m", "mlp", "sigmoid", "é" * 50),
    *([], {}, [[]], {"dict": {}}, {"tuple": []}, {"float": "nan"}, {"float": "inf"}),
    *({"dtype": "<f4"}, {"type": "float64"}, {"array": "C"}, {"tensor": "float32"}, {"list": []}),
)
DTYPES = ("float16", "float32", "float64", "int8", "int64", "uint8", "uint32", "uint64", "bool")


def places(value, path=()):
    """All paths in a JSON value, but the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items if isinstance(value, (dict, list)) else ():
        yield (*path, key)
        yield from places(item, (*path, key))


def holder(model, path):
    """The container of the last part of a path."""
    for key in path[:-1]:
        model = model[key]
    return model


def change_text(model, rng):
    """Change the JSON of a model at a random place; return what was done."""
    path = rng.choice(list(places(model)))
    own, key = holder(model, path), path[-1]
    kind = rng.choice(("replace", "graft", "delete", "double", "swap", "permute", "nest", "name"))
    if kind == "replace":
        own[key] = copy.deepcopy(rng.choice(VALUES))
    elif kind == "graft":
        other = rng.choice(list(places(model)))
        own[key] = copy.deepcopy(holder(model, other)[other[-1]])
    elif kind == "delete":
        del own[key]
    elif kind == "double":
        if isinstance(own, list):
            own.insert(key, copy.deepcopy(own[key]))
        else:
            own[rng.choice([f"{key}_", "nets", "history_", "_fixed", "__class__"])] = own[key]
    elif kind == "swap":
        other = rng.choice(list(places(model)))
        if path[: len(other)] != other and other[: len(path)] != path:
            there = holder(model, other)
            own[key], there[other[-1]] = there[other[-1]], own[key]
    elif kind == "permute":
        keys = list(own) if isinstance(own, dict) else range(len(own))
        items = [own[name] for name in keys]
        for name, item in zip(keys, rng.sample(items, len(items)), strict=True):
            own[name] = item
    elif kind == "nest":
        value = own[key]
        for _ in range(rng.choice((1, 2, 50))):
            value = rng.choice(([value], {"tuple": [value]}, {"dict": {"a": value}}))
        own[key] = value
    else:
        names = [p for p in places(model) if p[-1] in ("class", "name", "select")]
        if names:
            path = rng.choice(names)
            holder(model, path)[path[-1]] = rng.choice(sorted(SCHEMAS))
    return f"{kind} {'.'.join(map(str, path))}"


def change_array(arrays, rng):
    """Change a random array; return what was done."""
    name, other = rng.choice(sorted(arrays)), rng.choice(sorted(arrays))
    array = arrays[name].copy()
    kind = rng.choice(("dtype", "shape", "permute", "values", "swap", "delete", "length", "scale"))
    draw = np.random.default_rng(rng.randrange(2**32))
    with np.errstate(all="ignore"):
        if kind == "dtype":
            array = array.astype(rng.choice(DTYPES))
        elif kind == "shape":
            shapes = [(-1,), (1, -1), (-1, 1), (*array.shape, 1), array.shape[::-1]]
            array = array.reshape(rng.choice(shapes))
        elif kind == "permute":
            array = draw.permutation(array.ravel()).reshape(array.shape)
        elif kind == "values" and array.size:
            is_float = array.dtype.kind == "f"
            worst = rng.choice([np.nan, np.inf, -np.inf, 1e38, 0.0, -1.0] if is_float else [0, 1])
            if not is_float and array.dtype.kind in "iu" and rng.random() < 0.7:
                worst = rng.choice([np.iinfo(array.dtype).max, np.iinfo(array.dtype).min])
            array.flat[draw.integers(array.size)] = worst
        elif kind == "swap":
            arrays[name], arrays[other] = arrays[other], arrays[name]
            return f"swap {name} {other}"
        elif kind == "delete":
            del arrays[name]
            return f"delete {name}"
        elif kind == "length":
            n_values = rng.choice((0, 1, max(array.size - 1, 0), array.size + 1, 2 * array.size))
            array = np.resize(array, n_values) if array.size else np.zeros(n_values, array.dtype)
        else:
            array = (array * rng.choice((-1, 0, 2, 1000))).astype(array.dtype)
    arrays[name] = np.asarray(array)
    return f"{kind} {name}"


def changed(content, number):
    """The bytes of a changed file, and what was changed."""
    rng = random.Random(number)
    model, arrays, done = copy.deepcopy(content.model), dict(content.arrays), []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        with contextlib.suppress(ValueError, LookupError, TypeError, OverflowError):
            is_array = rng.random() < 0.4 and arrays
            done.append(change_array(arrays, rng) if is_array else change_text(model, rng))
    return file_format.pack(model, arrays, "0.1", content.versions), "; ".join(done)


def use(path, rows, y):
    """Load a file, predict, train and save; return how far it came."""
    try:
        model = load(path, trusted=TRUSTED)
    except ValueError as error:
        text = str(error)
        assert text.startswith("Got "), repr(text)
        assert text.isprintable(), repr(text)
        return "refused"
    came_to = "loaded"
    try:
        found = output(model, rows)
        assert len(found) == len(rows), "a prediction for each sample"
        came_to = "predicts"
    except AssertionError:
        raise
    except MemoryError:
        raise
    except Exception:
        pass
    for step in (lambda: train(model, rows, y), lambda: save(model, f"{path}.again")):
        try:
            step()
        except MemoryError:
            raise
        except Exception:
            pass
    return came_to


def train(model, rows, y):
    """Continue the training of a model, or of the last step of a pipeline."""
    while hasattr(model, "best_estimator_"):
        model = model.best_estimator_
    if hasattr(model, "steps"):
        rows, model = model[:-1].transform(rows), model[-1]
    getattr(model, "regressor_", model).partial_fit(rows, y)


def memory(name):
    """A number of bytes in the status of this process."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", status)[1])


def work(folder, first, n_changes, kinds):
    """Make, load and use changed files, from a task on; print a line for each."""
    warnings.simplefilter("ignore")
    report = os.fdopen(os.dup(1), "w", buffering=1)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for task in range(first, n_changes * len(kinds)):
            path, number = pathlib.Path(folder, kinds[task // n_changes]), task % n_changes
            if task == first or number == 0:
                content = file_format.unpack(path.read_bytes(), "a file", "1")
                rows, y = pickle.loads(path.with_suffix(".pkl").read_bytes())
                use(path, rows, y)  # imports what is needed
            data, change = changed(content, number)
            line = {"task": task, "kind": path.name, "number": number, "change": change}
            path.with_suffix(".changed").write_bytes(data)
            print(json.dumps(line), file=report)  # before, in case this process ends
            pathlib.Path("/proc/self/clear_refs").write_text("5")
            # The default action ends the process: training may hang where no exception arrives.
            signal.setitimer(signal.ITIMER_PROF, 4 * SECONDS)
            before, start = memory("VmRSS"), time.process_time()
            try:
                line["outcome"] = use(path.with_suffix(".changed"), rows, y)
            except (AssertionError, MemoryError) as error:
                line["outcome"] = f"failed: {error!r}"
            line["seconds"] = time.process_time() - start
            line["bytes"] = memory("VmHWM") - before
            line["limit"] = 4 * len(data) + SPARE
            print(json.dumps(line), file=report)


def prepare(folder, kind):
    """Save a model of a kind, and some of its samples."""
    model, (rows, y) = MAKERS[kind]()
    path = pathlib.Path(folder, kind)
    save(model.fit(rows, y), path)
    few = slice(None, None, max(1, len(y) // 12))
    parts = rows.iloc[few] if hasattr(rows, "iloc") else rows[few]
    path.with_suffix(".pkl").write_bytes(pickle.dumps((parts, y[few])))


def run(kinds, n_changes):
    """The outcome of each change of each kind of model."""
    lines = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            prepare(folder, kind)
        while len(lines) < n_changes * len(kinds):
            numbers = [str(len(lines)), str(n_changes)]
            command = [sys.executable, __file__, "--work", folder, *numbers, *kinds]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode <= 0, done.stderr[-2000:]
            found = map(json.loads, done.stdout.splitlines())
            lines |= {line["task"]: line for line in found}
            if done.returncode:
                lines[max(lines)]["outcome"] = f"failed: signal {-done.returncode}"
    return [lines[task] for task in sorted(lines)]


def is_wrong(line):
    """Whether a change led to a failure, or took too much."""
    is_over = line.get("bytes", 0) > line.get("limit", 0) or line.get("seconds", 0) > SECONDS
    return line["outcome"].startswith("failed") or is_over


def main():
    """Run the changes of all kinds, or of some, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="*")
    parser.add_argument("--changes", type=int, default=2000)
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        folder, first, n_changes, *kinds = given.work
        work(folder, int(first), int(n_changes), kinds)
        return
    print("kind, files, refused, loaded, predict, wrong, MB, seconds")
    for kind in given.kinds or MAKERS:
        lines = run([kind], given.changes)
        counts = collections.Counter(line["outcome"] for line in lines)
        counted = [counts[name] for name in ("refused", "loaded", "predicts")]
        most = [max(line.get(name, 0) for line in lines) for name in ("bytes", "seconds")]
        wrong = [line for line in lines if is_wrong(line)]
        numbers = [len(lines), *counted, len(wrong), round(most[0] / 2**20), round(most[1], 2)]
        print(kind, *numbers, sep=", ", flush=True)
        for line in wrong:
            print("  ", line)


if __name__ == "__main__":
    main()
