"""The benchmark app: configured by Hydra, it trains, compares and reports. Needs ``as-lightning[benchmark]``."""

import sys
from pathlib import PurePath

from as_lightning.benchmark.packages import how_to_install, missing_packages

# the console scripts say the same without a stack trace
if not PurePath(sys.argv[0]).name.startswith("as-lightning") and (_missing := missing_packages()):
    raise ImportError(f"as_lightning.benchmark {how_to_install(_missing)}", name=_missing[0])
