"""One list of texts, split into training, validation and test."""

from __future__ import annotations

from collections import Counter

from sklearn.model_selection import train_test_split

from as_lightning.benchmark.data.files import shortened
from as_lightning.benchmark.data.text.labelled_text import Sentence

LEAST = 10  # texts of a class, for 8 / 1 / 1


def split_sentences(sentences: list[Sentence], split_seed: int) -> dict[str, list[Sentence]]:
    """80 / 10 / 10 % for training, validation and test, stratified by class.

    Raises:
        ValueError: if a class has fewer than 10 texts, too few for all three splits: they are counted and named.
    """
    sizes = Counter(sentence.label for sentence in sentences)
    small = [f"{label!r} has {size}" for label, size in sorted(sizes.items()) if size < LEAST]
    if small:
        leave_out = f"leave them out (data.min_per_class={LEAST})" if len(small) < len(sizes) - 1 else "add texts"
        raise ValueError(
            f"{len(small)} of {len(sizes)} classes have fewer than {LEAST} texts, too few to split them in three: "
            f"{shortened(small)}: {leave_out}, or give files for validation and test"
        )
    train, rest = train_test_split(
        sentences, test_size=0.2, stratify=[sentence.label for sentence in sentences], random_state=split_seed
    )
    validation, test = train_test_split(
        rest, test_size=0.5, stratify=[sentence.label for sentence in rest], random_state=split_seed
    )
    return {"train": train, "validation": validation, "test": test}
