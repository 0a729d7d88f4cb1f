"""The Hydra app: train runs, keep their results, and report what a comparison shows."""
