"""The order in which Lightning calls callbacks."""

from __future__ import annotations

import lightning.pytorch as pl


def move_to_front(trainer: pl.Trainer, callback: pl.Callback) -> None:
    """Have the hooks of ``callback`` called before those of the user's callbacks. Call it in ``setup``.

    A user's callback may save a checkpoint in ``on_train_batch_end``, which Lightning resumes after that batch. So what
    ``callback`` notes of the batch must be noted before. (Lightning moves its own checkpoint callbacks to the end.)
    """
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    callbacks.remove(callback)
    callbacks.insert(0, callback)
