"""Parts of the diagnostics: expansions, samples of rows, coefficients, a monitor, pictures."""
