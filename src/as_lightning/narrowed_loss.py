"""The loss of a batch that is narrowed to its live samples: a search finds them, and the whole batch stays the mean's.

A callback drives it: it calls ``training_step`` once to search, which ends at the loss, narrows the batch, and calls
``training_step`` again. :class:`~as_lightning.ASSoftmaxMixin` computes its loss here while that goes on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from as_lightning.functional.counts import MaskingCounts
from as_lightning.loss_call import LossCall


class LossReached(BaseException):
    """Ends a search at the loss. (No ``Exception``: a ``training_step`` that catches these must not catch it.)"""


class Search(NamedTuple):
    """What a search has found of a batch of ``N`` samples.

    Attributes:
        kept: the numbers in the batch of the samples that stay, ascending, ``int64``.
        denominator: what the whole batch's loss is divided by; None where it is summed.
        left_out: the counts of the samples that go, whose competitors are all masked.
        live: which samples are live at the margin of the record, boolean, shape ``(N,)``.
    """

    kept: Tensor
    denominator: Tensor | None
    left_out: MaskingCounts
    live: Tensor


class NarrowedLoss:
    """The losses of one call of ``training_step``: of a search, of a narrowed batch, or of a whole one.

    Args:
        samples: the samples ``N`` of the whole batch.
        slack: what the search adds to the margin. A sample stays if it is live at ``delta + slack``.
        searched: what a search has found, if the batch is narrowed to it; None for a search or a whole batch.
        searches: whether this is a search.
        looks: whether to note of a whole batch what a search would keep of it.

    Attributes:
        calls: how many losses there have been.
        found: what the search has found, once it has reached the loss.
        seen: with ``looks``, the samples of a whole batch that a search would keep, boolean, shape ``(N,)``.
    """

    def __init__(
        self,
        samples: int,
        slack: float = 0.0,
        *,
        searches: bool = False,
        searched: Search | None = None,
        looks: bool = False,
    ) -> None:
        self.samples, self.slack, self.searches, self.searched = samples, slack, searches, searched
        self.looks = looks
        self.calls = 0
        self.found: Search | None = None
        self.seen: Tensor | None = None

    def loss(self, call: LossCall, delta: float, live_delta: float) -> tuple[Tensor, MaskingCounts, Tensor]:
        """The loss of the whole batch, its counts, and its live samples at the margin ``live_delta``.

        Raises:
            LossReached: in a search, which ends here.
            MisconfigurationException: if the loss cannot be computed from the live samples alone.
        """
        self.calls += 1
        if self.calls > 1:
            raise MisconfigurationException(
                "skip_backward=True needs one loss per step, but training_step has computed a second one: a sample "
                "that is masked in one loss may be live in the other. Add the logits up, or sleep only "
                "(skip_backward=False)."
            )
        if call.sharded:
            raise MisconfigurationException(
                "skip_backward=True does not work with classes that are spread over processes: sleep only "
                "(skip_backward=False)."
            )
        if call.reduction == "none":
            raise MisconfigurationException(
                "skip_backward=True needs a loss that is reduced by as-lightning, got reduction='none': the mean that "
                "training_step takes itself would be over the live samples alone. Use 'mean' or 'sum', or sleep only "
                "(skip_backward=False)."
            )
        if self.searches:
            self.found = self._search(call, delta, live_delta)
            raise LossReached
        if self.searched is None:
            return self._whole(call, delta, live_delta)
        return self._narrowed(call, self.searched, delta, live_delta)

    def _search(self, call: LossCall, delta: float, live_delta: float) -> Search:
        stays = self._stays(call, delta)
        # one sample stays in any case: a step without a gradient would not be AS-Softmax's, whose gradient is then 0
        kept = stays.nonzero().squeeze(-1)
        kept = kept if len(kept) else kept.new_zeros(1)
        goes = torch.ones_like(stays).index_fill(0, kept, False)
        rows = call.rows()
        samples, classes = (_of_samples(values, goes) for values in (rows.counted, rows.competitors))
        return Search(
            kept=kept,
            denominator=rows.weight.sum() if call.reduction == "mean" else None,
            left_out=MaskingCounts(samples, samples, classes, classes),
            live=by_sample(call.live(live_delta), self.samples),
        )

    def _stays(self, call: LossCall, delta: float) -> Tensor:
        return by_sample(call.live(min(delta + self.slack, 1.0)), self.samples)

    def _whole(self, call: LossCall, delta: float, live_delta: float) -> tuple[Tensor, MaskingCounts, Tensor]:
        if self.looks:
            self.seen = self._stays(call, delta)
        loss, counts, live = counted(call, delta, live_delta)
        return loss, counts, by_sample(live, self.samples)

    def _narrowed(
        self, call: LossCall, searched: Search, delta: float, live_delta: float
    ) -> tuple[Tensor, MaskingCounts, Tensor]:
        loss, counts, live = counted(call, delta, live_delta, reduction="sum")
        if live.dim() == 0 or len(live) != len(searched.kept):
            raise MisconfigurationException(
                f"the batch was narrowed to {len(searched.kept)} live samples, but the loss has "
                f"{'none' if live.dim() == 0 else len(live)}: training_step must take all its samples from its batch."
            )
        if searched.denominator is not None:
            loss = (loss / searched.denominator).to(loss.dtype)  # a half type may not hold the denominator
        counts = MaskingCounts(*(of_live + rest for of_live, rest in zip(counts, searched.left_out, strict=True)))
        # what this pass has found of the samples that stayed, and the search of the others
        return loss, counts, searched.live.index_copy(0, searched.kept, by_sample(live, len(live)))


def counted(
    call: LossCall, delta: float, live_delta: float, reduction: str | None = None
) -> tuple[Tensor, MaskingCounts, Tensor]:
    """A loss, its counts, and its live samples at a margin that need not be the loss's."""
    if live_delta == delta:
        return call(delta, reduction, return_counts=True, return_live=True)
    loss, counts = call(delta, reduction, return_counts=True)
    return loss, counts, call.live(live_delta)


def by_sample(live: Tensor, samples: int) -> Tensor:
    """One flag for each of ``samples`` samples: whether one of its tokens is live.

    Raises:
        MisconfigurationException: if ``live`` has another first dimension.
    """
    if live.dim() == 0 or len(live) != samples:
        raise MisconfigurationException(
            f"the training loss has told of live samples in shape {tuple(live.shape)}, but the batch has {samples} "
            "samples: give the loss targets whose first dimension is the batch, (N) or (N, L), not flattened."
        )
    return live if live.dim() == 1 else live.flatten(1).any(1)


def _of_samples(rows: Tensor, samples: Tensor) -> Tensor:
    """The sum over the rows of some samples, ``int64``."""
    of_each: Any = rows if rows.dim() == 1 else rows.flatten(1).sum(1)
    return (of_each * samples).sum(dtype=torch.int64)
