"""LightningDataModules of the benchmark: one file per data set or kind of file."""
