"""From the results of runs to tables, figures, verdicts and pages."""
