"""Texts: how they are tokenised and batched, and the data sets made of them."""
