"""Make the figures of the README and of some pages: ``python docs/make_figures.py``.

The photographs come with scikit-learn, and the audio is synthetic. The package does the mixing and
the spectrograms. The background is white, so that the figures suit light and dark mode.
"""

import pathlib

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.signal import chirp, lfilter
from sklearn.datasets import load_sample_images, make_moons

from mixupe_sklearn import MixupEClassifier, Spectrogram, preset
from mixupe_sklearn._images.arrays import resize
from mixupe_sklearn._method.formulas import mix
from mixupe_sklearn.diagnostics import plot_decision_boundary

FOLDER = pathlib.Path(__file__).parent / "_static"
DPI = 100
# Small, like the images of the experiments; the figure draws each pixel twice as large.
SIDE = 96
LAMS = (1.0, 0.75, 0.5, 0.25, 0.0)
COLOURS = {"china": "#b45309", "flower": "#7c3aed"}
RATE = 16000
PAIR = np.array([1, 0])


def photographs() -> torch.Tensor:
    """The centres of scikit-learn's two photographs, (2, 3, side, side) from 0 to 1."""
    squares = []
    for photograph in load_sample_images().images:
        pixels = torch.from_numpy(photograph.copy()).permute(2, 0, 1)[None]
        height, width = pixels.shape[2:]
        left = (width - height) // 2
        squares.append(resize(pixels[..., left : left + height], (SIDE, SIDE)))
    return torch.cat(squares) / 255


def mixed_images() -> Figure:
    """Two photographs mixed at several lam, with their mixed targets below."""
    figure = Figure(figsize=(11, 3.0), dpi=DPI, facecolor="white")
    axes = figure.subplots(2, len(LAMS), height_ratios=(6, 1))
    X, y = photographs(), torch.eye(2)
    for column, lam in enumerate(LAMS):
        (image, _), (target, _) = mix(X, lam, PAIR), mix(y, lam, PAIR)
        _show_image(axes[0, column], image, f"lam = {lam:g}")
        _show_target(axes[1, column], target)
    figure.subplots_adjust(left=0.012, right=0.988, top=0.9, bottom=0.02, wspace=0.08, hspace=0.03)
    return figure


def _show_image(axes: Axes, image: torch.Tensor, title: str) -> None:
    axes.imshow(image.permute(1, 2, 0).clamp(0, 1).numpy(), interpolation="nearest")
    axes.set_title(title, fontsize=12)
    axes.set_axis_off()


def _show_target(axes: Axes, target: torch.Tensor) -> None:
    """A bar as wide as the image, divided by the shares of the target."""
    start = 0.0
    for (name, colour), share in zip(COLOURS.items(), target.tolist(), strict=True):
        axes.barh(0, share, left=start, height=1, color=colour)
        if share:
            text = f"{name} {share:g}" if share >= 0.5 else f"{share:g}"
            axes.text(
                start + share / 2, 0, text, color="white", fontsize=10, ha="center", va="center"
            )
        start += share
    axes.set_xlim(0, 1)
    axes.set_ylim(-0.6, 0.6)
    axes.set_axis_off()


def times(duration: float) -> np.ndarray:
    """Times of the samples of a waveform, in seconds."""
    return np.arange(round(duration * RATE)) / RATE


def tone() -> np.ndarray:
    """Half a second of 1 kHz and its third harmonic."""
    time = times(0.5)
    return 0.5 * np.sin(2 * np.pi * 1000 * time) + 0.2 * np.sin(2 * np.pi * 3000 * time)


def rising() -> np.ndarray:
    """One second, rising from 200 Hz to 7 kHz."""
    time = times(1.0)
    return 0.6 * chirp(time, f0=200, f1=7000, t1=1.0)


def word() -> np.ndarray:
    """A made-up word: noise, then pulses of falling pitch through two vowels."""
    rng, time = np.random.default_rng(0), times(0.55)
    hiss = rng.normal(0, 0.05, round(0.2 * RATE))
    hiss = np.diff(hiss, prepend=0.0) * np.hanning(len(hiss))
    pitch = 140 - 40 * time
    pulses = np.diff(np.floor(np.cumsum(pitch) / RATE), prepend=0.0)
    ah, ee = _vowel(pulses, (730, 1090, 2440)), _vowel(pulses, (270, 2290, 3010))
    fade = np.clip((time - 0.2) / 0.15, 0, 1)
    voice = ((1 - fade) * ah + fade * ee) * np.hanning(len(time)) ** 0.5
    quiet = np.zeros(round(0.1 * RATE))
    return np.concatenate([quiet, hiss, 0.5 * voice, quiet, np.zeros(round(0.05 * RATE))])


def _vowel(pulses: np.ndarray, formants: tuple[int, ...]) -> np.ndarray:
    """Filter pulses by a resonance at each formant, 100 Hz wide, and scale the peak to one."""
    waveform, radius = pulses, np.exp(-np.pi * 100 / RATE)
    for formant in formants:
        poles = [1, -2 * radius * np.cos(2 * np.pi * formant / RATE), radius**2]
        waveform = lfilter([1.0], poles, waveform)
    return waveform / np.abs(waveform).max()


def spectrograms() -> Figure:
    """A tone, a rising tone and a made-up word, and a blend of the last two."""
    X = torch.from_numpy(Spectrogram().fit_transform([tone(), rising(), word()]))
    blend = mix(X[1:], 0.6, PAIR)[1:]
    titles = ("a tone of half a second", "a rising tone", "a made-up word")
    figure = Figure(figsize=(11, 3.4), dpi=DPI, facecolor="white", layout="constrained")
    axes = figure.subplots(1, 4, sharey=True)
    for panel, title, values in zip(
        axes, (*titles, "0.6 word + 0.4 rising tone"), torch.cat([X, blend]).numpy(), strict=True
    ):
        image = panel.imshow(
            values, origin="lower", aspect="auto", extent=(0, 1.01, 0, 8), vmin=-1, vmax=4
        )
        panel.set_title(title, fontsize=11)
        panel.set_xlabel("seconds")
        panel.set_xticks([0, 0.5, 1])
    axes[0].set_ylabel("kHz")
    figure.colorbar(image, ax=list(axes), label="deviations from the mean", pad=0.01)
    return figure


def boundaries() -> Figure:
    """Decision boundaries of one small network on two moons, trained by three methods."""
    X, y = make_moons(120, noise=0.35, random_state=0)
    settings = preset("paper") | {"alpha": 1.0, "eta": 0.1, "max_epochs": 500, "batch_size": 20}
    figure = Figure(figsize=(10.5, 3.3), dpi=DPI, facecolor="white", layout="constrained")
    methods = {"ERM": "erm", "Mixup": "mixup", "MixupE": "mixupe"}
    for panel, (title, method) in zip(figure.subplots(1, 3), methods.items(), strict=True):
        classifier = MixupEClassifier(**settings | {"method": method}, random_state=0).fit(X, y)
        plot_decision_boundary(classifier, X, y, ax=panel)
        panel.set_title(title, fontsize=12)
        panel.get_legend().remove()
        panel.set_axis_off()
    return figure


FIGURES = {
    "mixed-images.png": mixed_images,
    "spectrograms.png": spectrograms,
    "boundaries.png": boundaries,
}


def main() -> None:
    """Write all figures."""
    for name, make in FIGURES.items():
        make().savefig(FOLDER / name, metadata={"Software": None})
        print(f"{name}: {(FOLDER / name).stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
