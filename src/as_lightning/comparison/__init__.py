"""The fair comparison: equal tuning, equal time, paired verdicts, advice in words."""
