"""Clips: how they are read and turned into features, and the data sets made of them."""
