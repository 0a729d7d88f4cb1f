"""Searches that Lightning makes in the midst of a training."""

from lightning.pytorch.callbacks import LearningRateFinder


class FindsInTheSecondEpoch(LearningRateFinder):
    """Lightning's own example of a search at milestones, at the second epoch."""

    def __init__(self, num_training_steps=4, **settings):
        super().__init__(
            num_training_steps=num_training_steps,
            early_stop_threshold=None,
            update_attr=False,
            **settings,
        )

    def on_fit_start(self, *args):
        pass

    def on_train_epoch_start(self, trainer, pl_module):
        if trainer.current_epoch == 1:
            self.lr_find(trainer, pl_module)
