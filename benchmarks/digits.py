"""Test error of ERM, Mixup and MixupE on scikit-learn's digits: ``python -m benchmarks.digits``.

The paper's network and training (two hidden layers of 128, Adam 0.001, batches of 100, 25 epochs),
five random splits of 75 to 25, one seed each, and the estimator's default alpha and eta: nothing is
tuned. One row a fit goes to a CSV file; the table is made from that file alone.
"""

import argparse
import csv
import pathlib
import platform
import subprocess
import time

import numpy as np
import pandas as pd
import sklearn
import skorch
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mixupe_sklearn import MixupEClassifier, __version__

METHODS = ("erm", "mixup", "mixupe")


def commit() -> str:
    """The commit that is measured, or a word that there is none."""
    command = ["git", "describe", "--always", "--dirty"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def fit_once(X: np.ndarray, y: np.ndarray, method: str, seed: int) -> dict:
    """Split, fit, and measure: one row."""
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, random_state=seed, stratify=y
    )
    classifier = MixupEClassifier(method=method, random_state=seed)
    model = make_pipeline(StandardScaler(), classifier)
    start = time.perf_counter()
    model.fit(X_train, y_train)
    seconds = time.perf_counter() - start
    proba = model.predict_proba(X_test)
    return {
        "dataset": "digits",
        "seed": seed,
        "method": method,
        **{name: getattr(classifier, name) for name in ("alpha", "eta", "lr", "batch_size")},
        "max_epochs": classifier.max_epochs,
        "test_error_percent": 100 * (1 - model.score(X_test, y_test)),
        "test_log_loss": log_loss(y_test, proba),
        "fit_seconds": seconds,
        "versions": f"mixupe-sklearn {__version__}, torch {torch.__version__}, scikit-learn "
        f"{sklearn.__version__}, skorch {skorch.__version__}, Python {platform.python_version()}",
        "commit": commit(),
    }


def make_table(path: pathlib.Path) -> str:
    """Mean and standard deviation of each method, as Markdown, from the rows on disk."""
    rows = pd.read_csv(path)
    lines = ["| method | test error (%) | log loss | fit (s) |", "|---|---|---|---|"]
    for method in METHODS:
        part = rows[rows["method"] == method]
        error, loss = part["test_error_percent"], part["test_log_loss"]
        lines.append(
            f"| {method} | {error.mean():.2f} ± {error.std():.2f} | {loss.mean():.3f} ± "
            f"{loss.std():.3f} | {part['fit_seconds'].median():.2f} |"
        )
    n_seeds = rows["seed"].nunique()
    return "\n".join([*lines, "", f"digits, {n_seeds} splits; mean ± deviation, median seconds."])


def main() -> None:
    """Run all fits, then print the table and where the rows are."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, help="number of splits (default: 5)")
    parser.add_argument(
        "--output",
        type=pathlib.Path,
        default=pathlib.Path("build/digits.csv"),
        help="file for the rows; the table is written beside it (default: build/digits.csv)",
    )
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    X, y = load_digits(return_X_y=True)
    with options.output.open("w", newline="") as file:
        writer = None
        for seed in range(options.seeds):
            for method in METHODS:
                row = fit_once(X, y, method, seed)
                writer = writer or csv.DictWriter(file, row)
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerow(row)
                file.flush()
                print(f"seed {seed}  {method:7s}  error {row['test_error_percent']:5.2f} %")
    table = make_table(options.output)
    report = options.output.with_suffix(".md")
    report.write_text(table + "\n")
    print(f"\n{table}\n\nRows: {options.output}\nReport: {report}")


if __name__ == "__main__":
    main()
