"""The benchmark app: configured by Hydra, it trains, compares and reports. Needs
`as-lightning[benchmark]`.
"""
