"""The alternatives to softmax: a method a file, its loss called as ``F.cross_entropy`` is."""
