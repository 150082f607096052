"""Parts of the benchmarks for images and speech; rows and workers are the tabular one's."""
