"""Waveforms, audio files and spectrograms."""
