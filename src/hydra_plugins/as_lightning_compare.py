"""The sweeper of ``as-lightning-compare``: Hydra finds others' in ``hydra_plugins`` alone."""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig
from omegaconf.errors import MissingMandatoryValue


class CompareSweeper(Sweeper):
    """Makes the runs of a comparison by the configured launcher; ``params`` are more settings."""

    def __init__(self, params: dict[str, Any] | None = None, **_: Any) -> None:
        self.params = params or {}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        # here: Hydra imports every plugin at the start of every command
        from hydra.core.plugins import Plugins

        from as_lightning.bench.run.settings import check_files

        # before torch is loaded; a value with commas, which counts as missing, is refused later
        with suppress(MissingMandatoryValue):
            check_files(config)
        from as_lightning.comparison.configured import sweep

        plugins = Plugins.instance()
        launcher = plugins.instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )
        self.compare = functools.partial(sweep, config, launcher, hydra_context.config_loader)

    def sweep(self, arguments: list[str]) -> Any:
        return self.compare(
            [*(f"{name}={value}" for name, value in self.params.items()), *arguments]
        )
