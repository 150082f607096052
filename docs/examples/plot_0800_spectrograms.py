"""
Audio clips and their spectrograms
==================================

How does audio enter a network, and does mixing help when test clips are noisier than training
clips? :class:`~mixupe_sklearn.Spectrogram` turns waveforms into spectrograms, and
:class:`~mixupe_sklearn.MixupESpeechClassifier` learns from them.
"""

# %%
# Four kinds of synthetic clips
# -----------------------------
# Each clip lasts about half a second at 16 kHz: a steady tone, a rising one, a falling one, or a
# warbling one. Pitch, length and loudness are random, and noise is added.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from mixupe_sklearn import MixupESpeechClassifier, Spectrogram

RATE = 16000
KINDS = ("steady", "rising", "falling", "warbling")


def make_clip(kind, noise, rng):
    """A clip of one kind; the phase is the cumulative sum of the pitch."""
    time = np.arange(round(rng.uniform(0.35, 0.6) * RATE)) / RATE
    pitch = rng.uniform(700, 2800) * np.ones_like(time)
    sweep = rng.uniform(0.25, 0.6) * (time / time[-1] - 0.5)
    if kind == "rising":
        pitch *= 1 + sweep
    elif kind == "falling":
        pitch *= 1 - sweep
    elif kind == "warbling":
        pitch *= 1 + rng.uniform(0.05, 0.15) * np.sin(2 * np.pi * rng.uniform(6, 12) * time)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    return rng.uniform(0.1, 0.4) * np.sin(phase) + rng.normal(0, noise, len(time))


def make_clips(n_samples, noise, seed):
    """Clips of all kinds in turn, and their labels."""
    rng = np.random.default_rng(seed)
    kinds = np.resize(KINDS, n_samples)
    return [make_clip(kind, noise, rng).clip(-1, 1) for kind in kinds], kinds


clips, kinds = make_clips(160, noise=0.05, seed=0)

# %%
# Spectrograms
# ------------
# The transformer standardises each spectrogram and pads it to equal length, hence the flat right
# part. By default it keeps 160 frequencies and one second. Half of the frequencies and 0.6 seconds
# are enough here, and training is faster. The last panel is a blend of two: spectrograms are
# mixed, not waveforms.

transformer = Spectrogram(n_frequencies=80, n_frames=61)
spectrograms = transformer.fit_transform(clips)
print("clips, frequencies, frames:", spectrograms.shape)

shown = [*spectrograms[:4], 0.6 * spectrograms[1] + 0.4 * spectrograms[3]]
titles = [*KINDS, "0.6 rising + 0.4 warbling"]
figure, panels = plt.subplots(1, 5, figsize=(12, 3.2), layout="constrained", sharey=True)
for axes, values, title in zip(panels, shown, titles, strict=True):
    axes.imshow(values, origin="lower", aspect="auto", extent=(0, 0.61, 0, 4), vmin=-2, vmax=4)
    axes.set(xlabel="seconds", xticks=[0, 0.3, 0.6])
    axes.set_title(title, fontsize=10)
panels[0].set_ylabel("kHz")

# %%
# Training
# --------
# The estimator takes waveforms, files and folders, and computes spectrograms itself. Here several
# networks train on the same clips, so we pass the spectrograms. The network is a small LeNet.

settings = {
    "module_params": {"channels": (6, 8), "d_hidden": (32,)},
    "lr": 0.003,
    "lr_schedule": "cosine",
    "batch_size": 20,
    "max_epochs": 10,
}
methods = {"ERM": "erm", "MixupE": "mixupe"}
fitted = {
    (label, seed): MixupESpeechClassifier(**settings, method=method, random_state=seed).fit(
        spectrograms, kinds
    )
    for label, method in methods.items()
    for seed in range(2)
}

# %%
# More noise than in training
# ---------------------------
# The training clips have noise with a standard deviation of 0.05. Each method was trained with two
# seeds, and the band spans both.

levels = (0.05, 0.1, 0.2, 0.4, 0.8)
rows = []
for number, noise in enumerate(levels):
    noisy, y_test = make_clips(160, noise, seed=100 + number)
    noisy = transformer.transform(noisy)
    rows += [
        {"method": label, "seed": seed, "noise": noise, "accuracy": model.score(noisy, y_test)}
        for (label, seed), model in fitted.items()
    ]
scores = pd.DataFrame(rows).groupby(["method", "noise"], sort=False)["accuracy"]
print(scores.mean().unstack().round(3).to_string())

colours = {"ERM": "#6b7280", "MixupE": "#7c3aed"}
figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
for label, means in scores.mean().unstack().iterrows():
    axes.plot(means.index, means, "o-", color=colours[label], label=label)
    low, high = scores.min().unstack().loc[label], scores.max().unstack().loc[label]
    axes.fill_between(means.index, low, high, color=colours[label], alpha=0.15, lw=0)
axes.axhline(0.25, color="black", ls=":", lw=1, label="chance")
axes.set(
    xlabel="noise of the test clips (deviation)", ylabel="accuracy", ylim=(0, 1.03), xscale="log"
)
axes.set_xticks(levels, levels)
axes.minorticks_off()
axes.legend()

# %%
# What to take from it
# --------------------
# The estimator needs only a list of waveforms, and ``Spectrogram`` shows what the network sees.
# Noise beyond the training level costs accuracy. MixupE makes no difference here beyond that
# between seeds. These clips are simpler than speech: the :doc:`speech benchmark
# </benchmarks/speech>` has results on spoken words.
