"""The data of a comparison, read once before its first run: what is wrong with them is said once, not run by run."""

from __future__ import annotations

from hydra.errors import InstantiationException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from as_lightning.benchmark.settings import SettingError
from as_lightning.benchmark.train import encoder_for, read_data


def summary_of_data(config: DictConfig) -> str:
    """The classes of the configured data, and the samples of each split.

    Raises:
        SettingError: if the data cannot be read, or the configured model is one of another kind of data.
    """
    try:
        data = read_data(config)
        encoder_for(config, data)
    except (SettingError, OmegaConfBaseException):
        raise
    except Exception as error:  # whatever it is, every run would end in it
        cause = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
        raise SettingError(f"the data cannot be read, so no run has started: {cause}") from error
    return data.summary
