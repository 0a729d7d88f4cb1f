"""The macro F1 score, against scikit-learn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from torch.nn.functional import one_hot

from as_lightning.benchmark.tasks.tasks import MacroF1

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


def updated(pairs: list[tuple[int, int]]) -> MacroF1:
    said, target = torch.tensor(pairs).unbind(-1)
    score = MacroF1(5)
    score.update(one_hot(said, 5), target)
    return score


def scikit_learns(pairs: list[tuple[int, int]]) -> float:
    said, target = zip(*pairs, strict=True)
    return float(f1_score(target, said, average="macro", zero_division=0))


@given(first=PAIRS, second=PAIRS)
def test_the_score_is_scikit_learns_also_of_counts_that_two_ranks_add_up(first, second):
    assert float(updated(first).compute()) == pytest.approx(scikit_learns(first), abs=1e-6)
    score = updated(first)
    score.merge_state(updated(second))
    assert float(score.compute()) == pytest.approx(scikit_learns(first + second), abs=1e-6)


def test_what_is_ignored_does_not_count():
    said, target = torch.tensor([[0, 1, 2], [2, 2, 0]]), torch.tensor([[0, -100, 1], [2, -100, -100]])
    score = MacroF1(3, ignore_index=-100)
    score.update(one_hot(said, 3).transpose(1, 2), target)
    assert float(score.compute()) == pytest.approx(f1_score([0, 1, 2], [0, 2, 2], average="macro"))


def test_the_score_of_nothing_is_zero():
    score = MacroF1(3, ignore_index=-100)
    score.update(torch.zeros(2, 3), torch.tensor([-100, -100]))
    assert float(score.compute()) == 0.0
