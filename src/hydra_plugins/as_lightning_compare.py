"""The sweeper of ``as-lightning-compare``: Hydra finds sweepers of other packages in ``hydra_plugins`` alone."""

from __future__ import annotations

from typing import Any

from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class CompareSweeper(Sweeper):
    """Makes the runs of a comparison by the configured launcher: first those that tune, then those that are judged.

    Args:
        **params: of Hydra's basic sweeper; ``params`` are settings to sweep, as in ``hparams_search``.
    """

    def __init__(self, **params: Any) -> None:
        self.params: dict[str, Any] = dict(params.get("params") or {})

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        from hydra.core.plugins import Plugins

        self.config: DictConfig | None = config
        self.hydra_context: HydraContext | None = hydra_context
        self.launcher: Launcher | None = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        from as_lightning.benchmark.compare.sweep import sweep

        assert self.config is not None
        assert self.launcher is not None
        assert self.hydra_context is not None
        swept = [f"{name}={value}" for name, value in self.params.items()]
        return sweep(self.config, self.launcher, self.hydra_context.config_loader, [*swept, *arguments])
