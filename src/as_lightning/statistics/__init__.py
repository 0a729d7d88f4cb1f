"""Verdicts on scores: their boundaries, their pairing, tables of runs."""
