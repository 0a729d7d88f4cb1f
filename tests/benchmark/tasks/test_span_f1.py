"""The score of whole entities, against seqeval."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import f1_score
from torch.nn.functional import one_hot

from as_lightning.benchmark.tasks.tasks import SpanF1

NAMES = ["B-a", "B-b", "I-a", "I-b", "O"]
IGNORED = -100
WORD = st.tuples(st.integers(0, 4), st.integers(0, 4), st.booleans())  # predicted, annotated, whether it is scored
SENTENCES = st.lists(st.lists(WORD, min_size=1, max_size=12), min_size=1, max_size=6)


def update(score: SpanF1, sentence: list[tuple[int, int, bool]]) -> None:
    predicted = torch.tensor([[word[0] for word in sentence]])
    target = torch.tensor([[word[1] if word[2] else IGNORED for word in sentence]])
    score.update(one_hot(predicted, len(NAMES)).transpose(1, 2).float(), target)


def seqevals(sentences: list[list[tuple[int, int, bool]]]) -> float:
    def tags(which: int) -> list[list[str]]:
        return [[NAMES[word[which]] for word in sentence if word[2]] for sentence in sentences]

    return float(f1_score(tags(1), tags(0), average="micro", zero_division=0))


@given(sentences=SENTENCES)
def test_the_score_is_seqevals_micro_f1_over_all_updates(sentences):
    score = SpanF1(NAMES)
    for sentence in sentences:
        update(score, sentence)
    assert float(score.compute()) == pytest.approx(seqevals(sentences), abs=1e-6)


@given(first=SENTENCES, second=SENTENCES)
def test_counts_of_two_ranks_add_up(first, second):
    ranks = [SpanF1(NAMES), SpanF1(NAMES)]
    for score, sentences in zip(ranks, (first, second), strict=True):
        for sentence in sentences:
            update(score, sentence)
    ranks[0].merge_state(ranks[1])
    assert float(ranks[0].compute()) == pytest.approx(seqevals(first + second), abs=1e-6)


def test_a_batch_of_padded_sentences_scores_as_the_sentences_one_by_one():
    target = torch.tensor([[0, 2, 4, 1], [1, IGNORED, IGNORED, IGNORED]])
    predicted = torch.tensor([[0, 2, 4, 0], [1, 3, 0, 2]])
    score = SpanF1(NAMES)
    score.update(one_hot(predicted, 5).transpose(1, 2), target)
    assert float(score.compute()) == pytest.approx(2 * 2 / (3 + 3))


def test_the_score_without_any_entity_is_zero():
    score = SpanF1(NAMES)
    update(score, [(4, 4, True)] * 3)
    assert float(score.compute()) == 0.0
