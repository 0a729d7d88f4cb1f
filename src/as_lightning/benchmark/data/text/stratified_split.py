"""One list of texts, split into training, validation and test."""

from __future__ import annotations

from collections import Counter

from sklearn.model_selection import train_test_split

from as_lightning.benchmark.data.text.labelled_text import Sentence


def split_sentences(sentences: list[Sentence], split_seed: int) -> dict[str, list[Sentence]]:
    """80 / 10 / 10 % for training, validation and test, stratified by class.

    Raises:
        ValueError: if a class has fewer than 10 sentences, too few for all three splits.
    """
    smallest, size = min(Counter(sentence.label for sentence in sentences).items(), key=lambda item: item[1])
    if size < 10:
        raise ValueError(f"class {smallest!r} has {size} sentences: at least 10 are needed to split them in three")
    train, rest = train_test_split(
        sentences, test_size=0.2, stratify=[sentence.label for sentence in sentences], random_state=split_seed
    )
    validation, test = train_test_split(
        rest, test_size=0.5, stratify=[sentence.label for sentence in rest], random_state=split_seed
    )
    return {"train": train, "validation": validation, "test": test}
