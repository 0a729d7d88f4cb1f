"""An encoder with the settings of its configuration, which is where its defaults are."""

from hydra.utils import instantiate
from omegaconf import OmegaConf

from as_lightning.bench.packages import config_dir


def configured_encoder(model, **arguments):
    """The encoder of ``conf/model/<model>.yaml``, with ``arguments`` in place of some of its
    settings.
    """
    return instantiate(OmegaConf.load(config_dir() / "model" / f"{model}.yaml"))(**arguments)
