"""Networks from inputs to features: one file an architecture."""
