"""Classification of texts: tokens, padding and classes."""

from __future__ import annotations

import pytest
from harness.data_settings import TEXT

from as_lightning.benchmark.data.text.data_module import Sentence, TextDataModule


class Small(TextDataModule):
    """A text data module of given sentences."""

    def __init__(self, splits: dict[str, list[Sentence]], **arguments) -> None:
        super().__init__(**(TEXT | arguments))
        self.given = splits

    def read_splits(self):
        return self.given


SPLITS = {
    "train": [Sentence("turn the light on", "on"), Sentence("turn the light off please", "off")],
    "validation": [Sentence("light on", "on")],
    "test": [Sentence("off", "off")],
}


def test_the_tokenizer_sees_the_training_split_alone():
    data = Small({**SPLITS, "validation": [Sentence("zzz", "on")]})
    data.setup()
    assert "z" not in data.tokenizer.get_vocab()
    assert data.splits["validation"][0][0].unique().tolist() == [1]  # unknown, and not the padding


@pytest.mark.parametrize(("max_length", "lengths"), [(64, [4, 5]), (2, [2, 2])])
def test_batches_are_padded_with_zero_to_their_longest_sentence_of_max_length_at_most(max_length, lengths):
    data = Small(SPLITS, max_length=max_length)
    data.setup()
    token_ids, _ = data.collate([data.splits["train"][0], data.splits["train"][1]])
    assert (token_ids != 0).sum(1).tolist() == lengths
    assert token_ids.shape == (2, lengths[1])
