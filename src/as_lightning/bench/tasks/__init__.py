"""What is learned from the features: heads, losses, metrics, the benchmark's LightningModule."""
