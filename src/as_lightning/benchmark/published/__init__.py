"""What the project publishes of its own comparisons: the tables of ``results/`` and the summary in the README."""
