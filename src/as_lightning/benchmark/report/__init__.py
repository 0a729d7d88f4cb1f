"""From the results of runs to tables, figures, verdicts and pages."""

from as_lightning.benchmark.packages import require_core

require_core()
