"""LightningDataModules of the benchmark: one file a data set or kind of file."""
