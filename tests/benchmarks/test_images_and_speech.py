"""Benchmarks for images and speech: what is run, what a row holds, and what the reports say."""

import itertools
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from benchmarks import images, speech
from benchmarks._harness.docs_tables import block_of
from benchmarks._harness.paired_timing import ratio_of
from benchmarks._harness.results_file import read_rows
from benchmarks._vision_speech import report, timing
from benchmarks._vision_speech.command import RESULTS, resolve
from benchmarks._vision_speech.data import (
    Dataset,
    load_audio,
    load_digit_images,
    load_images,
    load_npz,
    make_tones,
)
from benchmarks._vision_speech.deformations import COLUMNS as DEFORMED
from benchmarks._vision_speech.deformations import DEFORMATIONS, accuracies, as_bytes, deform
from benchmarks._vision_speech.fits import KEY, SCHEMA, Fit, Study, config_of
from benchmarks._vision_speech.networks import network_of
from benchmarks._vision_speech.report import (
    CELLS,
    ablation_table,
    deformations_table,
    eta_table,
    methods_table,
    paper_table,
    sections_of,
)
from mixupe_sklearn.modules import NAMED
from mixupe_sklearn.recipes import recipe

TINY = "preactresnet18(width=4, blocks=(1, 1))"
TIMES = ["seconds_per_epoch", "fit_seconds", "commit", "run"]


def run_command(command, *arguments):
    return command.main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def image_file(tmp_path_factory):
    """A file of a few digits."""
    X, y = load_digits(n_class=3, return_X_y=True)
    X = (X * 15).astype(np.uint8).reshape(-1, 8, 8, 1)
    path = tmp_path_factory.mktemp("data") / "few.npz"
    np.savez(path, x_train=X[:100], y_train=y[:100], x_test=X[100:160], y_test=y[100:160])
    return path


@pytest.fixture(scope="module")
def run(image_file, tmp_path_factory):
    """A benchmark of images that was run: its options, and its folder."""
    folder = tmp_path_factory.mktemp("images")
    given = ["--data", image_file, "--networks", TINY, "--seeds", "2", "--epochs", "1"]
    given += ["--batch-size", "50", "--jobs", "1", "--quiet", "--output", folder]
    assert run_command(images, *given) == 0
    return given, folder


def rows_in(folder):
    return read_rows(folder / "rows.csv", SCHEMA)


def cells_of(line):
    return [cell.strip().replace("\\", "").strip("*") for cell in line.strip("| ").split("|")]


def lines_with(text, start):
    return [cells_of(line) for line in text.splitlines() if line.startswith(f"| {start}")]


def hand_made(**columns):
    """Rows of two networks, four cells and a quarter, by two seeds; figures identify them."""
    found = []
    methods = [("erm", None), ("mixup", None), ("erm+penalty", 1.0), ("mixupe", 1.0)]
    methods += [("mixupe", 0.25), ("manifold-mixup", None)]
    for seed, (place, network), (number, (method, fraction)) in itertools.product(
        range(2), enumerate(["small", "large"]), enumerate(methods)
    ):
        row = {
            **{"dataset": "cifar10_few", "data": "abc", "seed": seed, "network": network},
            **{"method": method, "penalty_fraction": fraction},
            "alpha": None if method == "erm" else 2.0 if method == "manifold-mixup" else 1.0,
            "eta": None if fraction is None else 0.001,
            "params": json.dumps({"module": network, "module_params": None, "max_epochs": 3}),
            **{"n_train": 100, "n_test": 50, "n_classes": 10, "n_parameters": 1000 + place},
            "test_error": 10.0 * place + number + seed,
            **{"test_log_loss": 1.0 + number, "test_ece": 0.1},
            "seconds_per_epoch": (1 + place) * (1 + 0.8 * (fraction or 0)),
            **{"fit_seconds": 5.0, "error": "", "versions": "torch 2", "commit": "c", "run": "now"},
        }
        found.append(row | dict.fromkeys(DEFORMED, 50.0 + number))
    rows = pd.DataFrame(found, columns=list(SCHEMA.columns))
    rows[SCHEMA.numbers] = rows[SCHEMA.numbers].apply(pd.to_numeric)
    return rows.assign(**columns)


CONFIGS = [config_of(name, alpha=1.0, eta=0.001) for name in CELLS]


def section_of(rows):
    (section,) = sections_of(rows)
    return section


def texts(sheet):
    return [[cell.text for cell in row] for row in sheet.rows]


# --- data -----------------------------------------------------------------------------------------


def test_digits_are_images_of_bytes():
    digits = load_digit_images()
    assert digits.X.shape == (1797, 8, 8, 1)
    assert digits.X.dtype == np.uint8
    assert digits.X.max() == 255
    X_train, y_train, X_test, y_test = digits.split(seed=3)
    np.testing.assert_array_equal(np.concatenate([X_train, X_test]), digits.X)
    np.testing.assert_array_equal(np.concatenate([y_train, y_test]), digits.y)


def test_a_file_of_arrays_keeps_its_split(image_file):
    found = load_images(image_file, None)
    with np.load(image_file) as file:
        np.testing.assert_array_equal(found.split(0).X_test, file["x_test"])
        np.testing.assert_array_equal(found.split(1).y_train, file["y_train"])
    assert found.name == "few"


def test_a_folder_of_images_is_trained_on_and_deformed(tmp_path):
    rng = np.random.default_rng(0)
    for part, word, number in itertools.product(("train", "test"), ("dark", "light"), range(3)):
        path = tmp_path / "shades" / part / word / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        low = 0 if word == "dark" else 200
        Image.fromarray(rng.integers(low, low + 50, (8, 8, 3), dtype=np.uint8)).save(path)
    table = load_images(tmp_path / "shades", "folder")
    assert (table.name, table.n_train, len(table.X)) == ("shades", 6, 12)
    config = config_of("mixup", alpha=1.0, eta=0.001)
    (row,) = Study.run_job(
        Fit(table, 0, network_of(TINY), config, {"max_epochs": 1, "batch_size": 3})
    )
    assert row["error"] == ""
    assert set(DEFORMED) <= set(row)


def test_the_fingerprint_depends_on_samples_classes_and_split(tmp_path):
    X, y = np.zeros((4, 2, 2, 1), np.uint8), np.arange(4) % 2
    changed = X.copy()
    changed[3, 0, 0, 0] = 1
    files = [tmp_path / name for name in ("a.png", "b.png")]
    for size, path in enumerate(files):
        path.write_bytes(b"x" * size)
    made = [
        *(Dataset("x", "image", X, y, 2), Dataset("x", "image", changed, y, 2)),
        *(Dataset("x", "image", X, 1 - y, 2), Dataset("x", "image", X, y, 3)),
        *(Dataset("x", "image", X.reshape(4, 1, 4, 1), y, 2),),
        *(Dataset("x", "image", files, y[:2], 1), Dataset("x", "image", files[::-1], y[:2], 1)),
    ]
    assert len({one.fingerprint for one in made}) == len(made)
    assert Dataset("y", "image", X.copy(), y.copy(), 2).fingerprint == made[0].fingerprint


def test_tones_are_split_by_voice_anew_for_each_seed():
    tones = make_tones()
    assert np.abs(tones.X).max() <= 1
    sides = []
    for seed in range(2):
        X_train, y_train, X_test, y_test = tones.split(seed)
        assert len(X_train) + len(X_test) == len(tones.y)
        voices = {
            waveform.tobytes(): voice
            for waveform, voice in zip(tones.X, tones.speakers, strict=True)
        }
        train, test = ({voices[waveform.tobytes()] for waveform in X} for X in (X_train, X_test))
        assert not train & test
        assert set(y_train) == set(y_test) == {"fall", "rise", "stay"}
        sides.append(test)
    assert sides[0] != sides[1]


def test_files_of_audio_are_found_and_split_by_speaker(tmp_path):
    for word, number in itertools.product(("no", "yes"), range(4)):
        path = tmp_path / word / f"0000000{number}_nohash_0.wav"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    found = load_audio(tmp_path)
    parts = found.split(0)
    assert sorted([*parts.X_train, *parts.X_test]) == sorted(found.X)
    assert all(word in path for word, path in zip(parts.y_test, parts.X_test, strict=True))


def save_arrays(path, n_labels):
    """Arrays of 60 images and labels, which need not fit together."""
    X, y = np.zeros((60, 8, 8)), np.arange(60) % 2
    np.savez(path, x_train=X[:40], x_test=X[40:], y_train=y[:n_labels], y_test=y[n_labels:])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: np.savez(path, x_train=[1]), "without y_train, x_test, y_test"),
        (lambda path: path.write_bytes(b"PK nothing"), "expected a readable .npz file"),
        (lambda path: save_arrays(path, n_labels=30), "but expected one per image"),
    ],
    ids=["arrays missing", "no npz", "labels of others"],
)
def test_a_file_that_is_no_dataset_is_refused(tmp_path, make, message):
    make(tmp_path / "x.npz")
    with pytest.raises((ValueError, OSError), match=message):
        load_npz(tmp_path / "x.npz")


# --- deformations ---------------------------------------------------------------------------------


def noise(n=3):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (n, 3, 12, 12), generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("name", DEFORMATIONS)
def test_a_deformation_is_always_the_same(name):
    X = noise()
    first = deform(X, name)
    assert (first.shape, first.dtype) == (X.shape, torch.uint8)
    assert torch.equal(deform(X, name), first)
    # An image's deformation does not depend on how many come after it.
    assert torch.equal(deform(X[:2], name), first[:2])
    assert (first != X).any()


def test_large_sets_are_deformed_like_small_ones(monkeypatch):
    X = noise(7)
    whole = deform(X, "rotation_40")
    monkeypatch.setattr("benchmarks._vision_speech.deformations.BLOCK", 3)
    assert torch.equal(deform(X, "rotation_40"), whole)


def test_a_zoom_below_one_shows_the_middle_and_one_above_a_black_rim():
    X = torch.zeros(1, 1, 20, 20, dtype=torch.uint8)
    X[:, :, 5:15, 5:15] = 200
    assert (deform(X, "zoom_60") > 100).sum() > 2 * (X > 100).sum()
    outer = deform(torch.full_like(X, 200), "zoom_140")[0, 0]
    assert (outer[:2] == 0).all()
    assert outer[10, 10] == 200


class Bright:
    """Predicts whether the mean of an image is above a quarter of white."""

    image_size, shape_in_ = None, (3, 12, 12)

    def predict(self, X):
        return (X.float().mean(dim=(1, 2, 3)) > 64).numpy().astype(int)


def test_accuracy_is_that_of_the_deformed_images():
    X, y = torch.full((3, 3, 12, 12), 90, dtype=torch.uint8), np.array([1, 1, 0])
    found = accuracies(Bright(), X, y)
    assert list(found) == list(DEFORMED) == list(report.PAPER_DEFORMED)
    # The inner part is as bright; with a black rim, 90 falls to about 90 / 1.4 ** 2 = 46.
    assert found["accuracy_zoom_60"] == pytest.approx(200 / 3)
    assert found["accuracy_zoom_140"] == pytest.approx(100 / 3)


def test_images_of_any_kind_are_deformed_alike(tmp_path, monkeypatch):
    pixels, y = noise().permute(0, 2, 3, 1).numpy(), np.array([1, 1, 0])
    paths = [tmp_path / f"{number}.png" for number in range(len(pixels))]
    for path, image in zip(paths, pixels, strict=True):
        Image.fromarray(image).save(path)
    kinds = (pixels, pixels / 255, paths)
    found = [as_bytes(kind, Bright()) for kind in kinds]
    assert all(torch.equal(one, noise()) for one in found)
    monkeypatch.setattr("mixupe_sklearn._images.read.IN_MEMORY", 10)
    assert accuracies(Bright(), paths, y) == {}


# --- networks and plans ---------------------------------------------------------------------------


def test_a_config_has_only_the_numbers_that_its_method_reads():
    config = config_of("mixup", alpha=1.0, eta=0.001)
    assert config.numbers == {"alpha": 1.0, "eta": None, "penalty_fraction": None}


def test_a_network_is_a_name_with_arguments():
    small = network_of("small-preactresnet")
    assert small.module_params == {"width": 16, "blocks": (1, 1, 1, 1)}
    wide = network_of(" small-preactresnet( width = 8 ) ")
    assert (wide.name, wide.module) == ("small-preactresnet(width=8)", "preactresnet18")
    assert wide.module_params == {"width": 8, "blocks": (1, 1, 1, 1)}
    assert [network_of(name).module for name in NAMED] == list(NAMED)
    assert len(resolved("--networks", "lenet", "lenet()", "vgg11").networks) == 2


@pytest.mark.parametrize(
    "text", ["resnet1001", "vgg11(8)", "vgg11(width=)", "vgg11(width=open('x'))", "vgg11(**a)", "("]
)
def test_a_network_that_is_unknown_or_not_plain_is_refused(text):
    with pytest.raises(ValueError, match="Got network"):
        network_of(text)


def test_a_recipe_is_a_network_with_its_training():
    network = network_of("cifar10-preactresnet50(scale=0.1, blocks=(1, 1, 1, 1))")
    trial = recipe("cifar10-preactresnet50").make_estimator(scale=0.1)
    assert network.module == "preactresnet50"
    assert network.module_params == {"width": 8, "blocks": (1, 1, 1, 1)}
    config = config_of("mixup", alpha=1.0, eta=0.1)
    fit = Fit(load_digit_images(), 0, network, config, {"max_epochs": 3, "device": "cpu"})
    assert fit.make().max_epochs == trial.max_epochs
    recorded = json.loads(fit.identity["params"])["callbacks"]
    assert recorded[0]["callback"] == "LRScheduler"
    assert recorded[0]["milestones"] == trial.callbacks[0].milestones
    assert fit.identity == fit.identity


def resolved(*arguments):
    options = images.parser().parse_args(arguments)
    resolve(options)
    return options


def test_alpha_and_eta_are_those_of_a_recipe_unless_they_are_given():
    assert (resolved().alpha, resolved().eta) == (1.0, 0.001)
    tiny = "tinyimagenet-preactresnet18"
    assert resolved("--networks", tiny).alpha == recipe(tiny).alpha == 0.2
    assert resolved("--networks", tiny, "--alpha", "0.3").alpha == 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cifar10-preactresnet50", "--epochs", "3"], "Got --epochs with the recipe cifar10-"),
        (["speech-lenet"], "Got speech-lenet, but expected a recipe for image."),
        (
            ["cifar10-preactresnet50", "tinyimagenet-preactresnet18"],
            "Got recipes with alpha 0.2 and 1.0, but expected one",
        ),
    ],
    ids=["an option of its own", "of another kind", "two of different alpha"],
)
def test_recipes_that_do_not_fit_the_options_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        resolved("--networks", *arguments)


def test_fits_are_made_seed_by_seed():
    study = Study([network_of("lenet")], [config_of("erm", alpha=1, eta=1)] * 2, {}, n_seeds=2)
    assert [fit.seed for fit in study.fits(make_tones())] == [0, 0, 1, 1]


def test_methods_have_the_numbers_that_they_read():
    made = {name: config_of(name, alpha=1.0, eta=0.1) for name in ("erm", "mixup", "mixupe")}
    assert made["erm"].params == {"method": "erm"}
    assert made["mixup"].params == {"method": "mixup", "alpha": 1.0}
    assert made["mixupe"].params == {
        **{"method": "mixupe", "alpha": 1.0, "eta": 0.1, "penalty_fraction": 1.0}
    }
    manifold = config_of("manifold-mixup", alpha=2.0, eta=0.1).params
    assert manifold == {"method": "mixup", "mix_at": "hidden", "alpha": 2.0}


def test_where_training_reads_spectrograms_from_makes_no_other_fit():
    network, config = network_of("lenet"), config_of("mixup", alpha=1.0, eta=0.1)
    keys = {
        SCHEMA.key_of(Fit(make_tones(), 0, network, config, training).identity)
        for training in ({}, {"cache": "here"}, {"cache": "there"})
    }
    assert len(keys) == 1
    other = Fit(make_tones(), 0, network, config, {"max_epochs": 3}).identity
    assert SCHEMA.key_of(other) not in keys


# --- runs -----------------------------------------------------------------------------------------


def test_every_fit_is_a_row(run):
    _, folder = run
    rows = rows_in(folder)
    assert (rows["error"] == "").all()
    fits = rows.groupby(["method", rows["penalty_fraction"].fillna(0)]).size()
    assert fits.to_dict() == {
        **{("erm", 0.0): 2, ("mixup", 0.0): 2, ("erm+penalty", 1.0): 2},
        **{("mixupe", 1.0): 2, ("mixupe", 0.25): 2},
    }
    assert rows["test_error"].between(0, 100).all()
    assert rows[list(DEFORMED)].notna().all(axis=None)
    assert (rows["seconds_per_epoch"] < rows["fit_seconds"]).all()
    params = json.loads(rows["params"][0])
    assert params["module_params"] == {"blocks": [1, 1], "width": 4}
    assert (params["max_epochs"], params["augment"], params["lr"]) == (1, "crop-flip", 0.1)
    assert rows["n_parameters"].nunique() == 1
    assert rows["versions"].str.contains("torch").all()


def test_a_row_can_be_made_again_from_what_it_says(run, image_file):
    _, folder = run
    row = rows_in(folder).query("penalty_fraction == 0.25 and seed == 1").iloc[0]
    training = json.loads(row["params"])
    for name in ("module", "module_params"):
        training.pop(name)
    config = config_of("mixupe", alpha=1.0, eta=0.001, penalty_fraction=0.25)
    fit = Fit(load_images(image_file, None), int(row["seed"]), network_of(TINY), config, training)
    (again,) = Study.run_job(fit)
    for name in (*KEY, "test_error", "test_log_loss", *DEFORMED):
        assert again[name] == row[name], name


def test_ablation_and_deformations_run_only_missing_fits(run, tmp_path, monkeypatch):
    given, done = run
    folder = shutil.copytree(done, tmp_path / "again")
    given = [*given[:-1], folder]
    before = (folder / "rows.csv").read_text()
    monkeypatch.setattr(images, "ETAS", (0.001, 0.1))
    assert run_command(images, *given, "--ablation") == 0
    assert run_command(images, *given, "--deformations") == 0
    text = (folder / "rows.csv").read_text()
    assert text.startswith(before)
    rows = rows_in(folder)
    added = rows.iloc[len(before.splitlines()) - 1 :]
    methods = list(zip(added["method"], added["alpha"], added["eta"].fillna(0), strict=True))
    assert methods == [("mixupe", 1.0, 0.1)] * 2 + [("manifold-mixup", 2.0, 0.0)] * 2
    table = (folder / "ablation.md").read_text()
    for eta in (0.001, 0.1):
        errors = rows.query(f"method == 'mixupe' and eta == {eta} and penalty_fraction == 1")
        assert lines_with(table, f"MixupE, eta {eta:g}")[0][1] == shown(errors["test_error"])
    page = (folder / "deformations.md").read_text()
    manifold = rows[rows["method"] == "manifold-mixup"]
    assert lines_with(page, "zoom 140")[0][2] == shown(manifold["accuracy_zoom_140"])
    assert lines_with(page, "as they are")[0][2] == shown(100 - manifold["test_error"])


def shown(values):
    return f"{values.mean():.2f} ± {values.std():.2f}"


def test_the_report_says_what_the_rows_say(run, capsys):
    given, folder = run
    assert run_command(images, *given, "--report-only") == 0
    printed = capsys.readouterr().out
    page, rows = (folder / "report.md").read_text(), rows_in(folder)
    first = {line[1]: line for line in lines_with(page, TINY.split("(")[0]) if len(line) == 10}
    erm = rows.loc[rows["method"] == "erm", "test_error"]
    assert first["ERM"][5] == shown(erm)
    assert shown(erm) in printed
    assert "compare methods within one run" in page
    assert "compare methods within one run" in printed


def test_digits_are_run_without_data_options(tmp_path, capsys):
    options = ["--networks", "preactresnet18(width=2, blocks=(1, 1))", "--methods", "erm"]
    options += ["--seeds", "1", "--epochs", "1", "--jobs", "1", "--quiet", "--output", tmp_path]
    assert run_command(images, *options) == 0
    row = rows_in(tmp_path).iloc[0]
    assert (row["dataset"], row["n_train"], row["n_test"]) == ("digits", 1437, 360)
    assert json.loads(row["params"])["augment"] is None
    assert row["test_error"] < 85


def test_tones_are_run_without_data_options(tmp_path, capsys):
    network = "lenet(channels=(2, 2), d_hidden=(8,))"
    options = ["--networks", network, "--seeds", "1", "--epochs", "2", "--jobs", "1", "--quiet"]
    options += ["--methods", "mixup", "mixupe", "--output", tmp_path, "--cache", tmp_path / "kept"]
    options += ["--batch-size", "24"]
    assert run_command(speech, *options) == 0
    before = (tmp_path / "rows.csv").read_bytes()
    assert run_command(speech, *options) == 0
    assert (tmp_path / "rows.csv").read_bytes() == before
    rows = rows_in(tmp_path)
    assert rows["method"].tolist() == ["mixup", "mixupe"]
    assert (rows["error"] == "").all()
    assert rows[list(DEFORMED)].isna().all(axis=None)
    assert list((tmp_path / "kept").iterdir())
    page = (tmp_path / "report.md").read_text()
    assert lines_with(page, "lenet")[0][1] == "Mixup"


def test_a_fit_that_fails_says_why_and_the_others_go_on(image_file, tmp_path, capsys):
    given = ["--data", image_file, "--networks", "vgg11(width=2)", TINY, "--methods", "erm"]
    given += ["--seeds", "1", "--epochs", "1", "--jobs", "1", "--quiet", "--output", tmp_path]
    assert run_command(images, *given) == 0
    rows = rows_in(tmp_path)
    assert "Got image_size=(8, 8)" in rows["error"][0]
    assert rows["error"][1] == ""
    assert "1 of 2 fits failed, such as: ValueError: Got image\\_size=" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--layout", "svhn"], "Got --layout svhn, but expected it with --data only."),
        (
            ["--data", "nowhere.npz"],
            "Got --data nowhere.npz, but expected an existing file or folder",
        ),
        (["--data", "."], "without --layout, but expected one of cifar10, cifar100"),
        (["--networks", "resnet1001"], "Got network 'resnet1001', but expected one of"),
        (["--report-only"], "Got no rows in"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_options_are_errors_of_one_line(options, message, tmp_path, capsys):
    assert run_command(images, *options, "--output", tmp_path, "--quiet") == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


# --- reports --------------------------------------------------------------------------------------


def test_methods_have_deviations_and_differences_from_mixup():
    found = texts(methods_table(section_of(hand_made())))
    assert [line[:2] for line in found[:6]] == [
        *(["small", "ERM"], ["small", "ERM + penalty"], ["small", "Mixup"]),
        *(["small", "Manifold Mixup"], ["small", "MixupE"]),
        ["small", "MixupE, 25 % penalised"],
    ]
    erm, mixupe = found[0], found[4]
    assert erm[2:7] == ["", "", "2", "0.50 ± 0.71", "-1.00"]
    assert mixupe[2:7] == ["1", "0.001", "2", "3.50 ± 0.71", "+2.00"]
    is_best = [row[5].is_best for row in methods_table(section_of(hand_made())).rows]
    assert is_best == [True, *[False] * 5] * 2


def test_mixup_of_the_same_alpha_is_compared_with():
    rows = hand_made()
    other = rows[rows["method"].isin(["mixup", "mixupe"])].assign(alpha=0.2)
    other["test_error"] += np.where(other["method"] == "mixupe", 30, 20)
    found = texts(methods_table(section_of(pd.concat([rows, other]))))
    differences = {(line[1], line[2]): line[6] for line in found if line[0] == "small"}
    assert differences["MixupE", "1"] == "+2.00"
    assert differences["MixupE", "0.2"] == "+12.00"
    assert differences["Manifold Mixup", "2"] == f"{5 - (1 + 21) / 2:+.2f}"


def test_ratios_have_their_bounds_and_verdicts(tmp_path):
    times = {"Mixup": [1.0, 10.0, 2.0], "MixupE": [1.8, 18.0, 3.6]}
    times["MixupE, 25 % penalised"] = [1.5, 15.0, 2.6]
    timing.write_times(tmp_path / "times", {"dataset": "few", "n_rows": 100}, {"small": times})
    found = texts(timing.table_of(tmp_path / "times"))
    same = ["3", "1.80 (no spread)", "2.00", "held"]
    assert found[0] == ["small", "MixupE", "3.60", "2.00", *same]
    assert found[1][-3:] == ["1.50 (1.40 to 1.50)", "1.35", "missed"]


def test_epochs_are_timed_in_turns_and_reported(run, tmp_path, capsys):
    given, folder = run
    shutil.copytree(folder, tmp_path / "copy")
    given = [*given[:-1], tmp_path / "copy"]
    assert run_command(images, *given, "--timing", "2") == 0
    assert len(rows_in(tmp_path / "copy")) == len(rows_in(folder))
    found = json.loads((tmp_path / "copy" / "timing.json").read_text())["seconds"]
    (times,) = found.values()
    assert {name: len(values) for name, values in times.items()} == dict.fromkeys(times, 2)
    ratio = str(ratio_of(times["MixupE"], times["Mixup"]))
    assert ratio in capsys.readouterr().out
    assert run_command(images, *given, "--report-only") == 0
    assert ratio in (tmp_path / "copy" / "report.md").read_text()


def test_the_ablation_has_four_cells_beside_the_papers():
    found = texts(ablation_table(section_of(hand_made()), CONFIGS))
    assert found == [
        ["ERM", "0.50 ± 0.71", "10.50 ± 0.71", "24.68"],
        ["Mixup", "1.50 ± 0.71", "11.50 ± 0.71", "23.03"],
        ["ERM + penalty", "2.50 ± 0.71", "12.50 ± 0.71", "22.42"],
        ["MixupE", "3.50 ± 0.71", "13.50 ± 0.71", "20.23"],
    ]


def test_etas_are_compared_with_mixup():
    rows = hand_made()
    strong = rows[rows["method"] == "mixupe"].assign(eta=0.1, test_error=9.0)
    milder = rows.assign(alpha=0.2, test_error=77.0)
    section = section_of(pd.concat([rows, strong, milder]))
    etas = [config_of("mixupe", alpha=1.0, eta=eta) for eta in (0.1, 0.001)]
    found = texts(eta_table(section, config_of("mixup", alpha=1.0, eta=0), etas))
    assert found == [
        ["Mixup", "1.50 ± 0.71", "11.50 ± 0.71", "23.03"],
        ["MixupE, eta 0.001", "3.50 ± 0.71", "13.50 ± 0.71", "20.84"],
        ["MixupE, eta 0.1", "9.00 ± 0.00", "9.00 ± 0.00", "20.87"],
    ]
    # The four cells are of one alpha and one eta.
    cells = texts(ablation_table(section, CONFIGS))
    assert cells[2][1:3] == ["2.50 ± 0.71", "12.50 ± 0.71"]
    assert cells[3][1:3] == ["3.50 ± 0.71", "13.50 ± 0.71"]


def test_a_table_without_rows_is_none():
    section = section_of(hand_made())
    others = [config_of(name, alpha=9.0, eta=9.0) for name in ("mixup", "mixupe")]
    assert ablation_table(section, others) is None
    assert deformations_table(section, "small", others) is None


def test_deformations_stand_beside_the_papers():
    configs = [
        config_of("mixup", alpha=1.0, eta=0.001),
        config_of("manifold-mixup", alpha=2.0, eta=0.001),
        config_of("mixupe", alpha=1.0, eta=0.001),
    ]
    sheet = deformations_table(section_of(hand_made()), "small", configs)
    assert [column.head for column in sheet.columns[1:4]] == [
        *("Mixup, alpha 1", "Manifold Mixup, alpha 2", "MixupE, alpha 1"),
    ]
    found = texts(sheet)
    assert len(found) == 1 + len(DEFORMATIONS)
    assert found[0][:4] == ["as they are", "98.50 ± 0.71", "94.50 ± 0.71", "96.50 ± 0.71"]
    assert found[1] == [
        *("rotation U(-20, 20)", "51.00 ± 0.00", "55.00 ± 0.00", "53.00 ± 0.00"),
        *("55.55", "56.48", "60.08", "62.23"),
    ]
    assert [cell.is_best for cell in sheet.rows[1][1:4]] == [False, True, False]


def test_rows_of_other_data_and_other_training_are_separate():
    rows = hand_made()
    longer = json.dumps({"module": "small", "module_params": None, "max_epochs": 9})
    every = [
        rows,
        rows.assign(data="other"),
        rows[rows["network"] == "small"].assign(params=longer),
    ]
    found = list(sections_of(pd.concat(every)))
    assert [len(section.rows) for section in found] == [len(rows), len(rows), len(rows) // 2]
    assert [section.training["max_epochs"] for section in found] == [3, 3, 9]


def test_networks_of_one_name_with_different_parameters_get_different_names():
    rows = hand_made()
    wider = json.dumps({"module": "small", "module_params": {"width": 9}, "max_epochs": 3})
    other = rows[rows["network"] == "small"].assign(params=wider)
    section = section_of(pd.concat([rows, other]))
    assert list(section.networks) == ["small", "large", "small #2"]
    assert section.networks["small #2"]["module_params"] == {"width": 9}


def test_the_papers_table_is_that_of_the_dataset():
    assert texts(paper_table("cifar10_subset"))[0] == [
        *("preactresnet50", "4.71 ± 0.06", "4.53 ± 0.04", "3.53 ± 0.05"),
    ]
    assert texts(paper_table("cifar100"))[0][1] == "24.68 ± 0.35"
    assert texts(paper_table("speech-commands"))[0][0] == "lenet"
    assert paper_table("digits") is None


def test_the_papers_ablation_agrees_with_its_tables():
    errors = report.paper_errors("cifar100")["preactresnet50"]
    assert {name: errors[name][0] for name in errors} == {
        name: report.PAPER_ABLATION[name] for name in report.PAPER_METHODS
    }
    assert min(report.PAPER_BY_ETA.values()) == report.PAPER_ABLATION["mixupe"]


@pytest.mark.parametrize("flags", [[], ["--ablation"], ["--deformations"]], ids=str)
def test_the_committed_reports_of_images_are_those_of_the_committed_rows(flags, tmp_path):
    options = resolved(*flags)
    check_committed(images.report_of(options), "images", tmp_path)


def test_the_committed_report_of_speech_is_that_of_the_committed_rows(tmp_path):
    check_committed(speech.REPORT, "speech", tmp_path)


def check_committed(made, name, tmp_path):
    folder = shutil.copytree(RESULTS / name, tmp_path / name)
    report.make_report(made, folder)
    assert (folder / made.file).read_text() == (RESULTS / name / made.file).read_text()
    page = (report.PAGES / f"{name}.md").read_text()
    if made.file == "report.md":
        assert block_of(page, made.name) == report.page_tables(made, folder)
    else:
        assert f"benchmarks/results/{name}/{made.file})" in page


@pytest.mark.parametrize("flag", ["--ablation", "--deformations"])
def test_a_report_that_the_page_links_to_is_not_written_into_it(flag, capsys):
    assert images.main([flag, "--docs", "--report-only"]) == 2
    assert f"Got --docs with {flag}, but expected one of them" in capsys.readouterr().err
