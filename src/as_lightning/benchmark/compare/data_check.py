"""The data of a comparison, read once before its first run: what is wrong with them is said once, not run by run."""

from __future__ import annotations

from hydra.errors import InstantiationException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from as_lightning.benchmark.data.base import collected_messages
from as_lightning.benchmark.run.settings import SettingError
from as_lightning.benchmark.run.train import encoder_for, read_data


def summary_of_data(config: DictConfig) -> str:
    """The classes of the configured data, the samples of each split, and what is left out.

    Raises:
        SettingError: if the data cannot be read, or the configured model is one of another kind of data.
    """
    try:
        with collected_messages() as messages:
            encoder_for(config, read_data(config))
    except (SettingError, OmegaConfBaseException):
        raise
    except Exception as error:  # whatever it is, every run would end in it
        cause = error.__cause__ if isinstance(error, InstantiationException) and error.__cause__ else error
        raise SettingError(f"the data cannot be read, so no run has started: {cause}") from error
    return "\n".join(messages)
