"""The fair comparison: equal tuning, equal time, paired verdicts, advice in words."""

from as_lightning.bench.packages import require_core

require_core()
