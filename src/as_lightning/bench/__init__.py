"""The benchmark app, configured by Hydra. It needs ``as-lightning[benchmark]``."""
