"""Tagged sentences in CoNLL's columns."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from as_lightning.bench.data.files import normal_form, read_text
from as_lightning.bench.data.reading import note

BIO = re.compile("O|[BI]-.*")


class TaggedSentence(NamedTuple):
    """The words of a sentence and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def read_conll(
    path: Path, word_column: int = 0, tag_column: int = -1, encoding: str | None = None
) -> list[TaggedSentence]:
    """Read CoNLL columns: one word with its tag on each line, columns separated by a tab or spaces.

    A blank line or ``-DOCSTART-`` ends a sentence. A ValueError names the malformed line, and the
    way out.
    """
    sentences: list[TaggedSentence] = []
    rows: list[tuple[str, str]] = []
    for number, line in enumerate([*read_text(path, encoding).split("\n"), ""], start=1):
        if line.startswith("-DOCSTART-") or not line.strip():
            if rows:
                sentences.append(TaggedSentence(*zip(*rows, strict=True)))
                rows = []
            continue
        # At spaces alone: a no-break space, or an ideographic one, is part of its word.
        columns = line.split("\t") if "\t" in line else re.findall("[^ ]+", line)
        word = tag = ""
        with suppress(IndexError):
            word, tag = columns[word_column], normal_form(columns[tag_column])
        if len(columns) < 2 or not BIO.fullmatch(tag):
            raise ValueError(
                f"{path}:{number}: expected a word in column {word_column} and a tag O, B-... or "
                f"I-... in column {tag_column}, got {line[:80]!r}{way_out(columns, tag)}"
            )
        rows.append((word, tag))
    if not sentences:
        raise ValueError(f"{path}: expected sentences in columns, found none")
    _check_beginnings(path, sentences)
    return sentences


def way_out(columns: list[str], tag: str) -> str:
    """Return what to do about a line whose tag is of another form."""
    if re.fullmatch("[BILOUES]-.+", tag):
        return ": convert tags of the forms BIOES and BILOU to BIO: S, U to B; E, L to I"
    others = [number for number, value in enumerate(columns) if number and BIO.fullmatch(value)]
    return f": set data.tag_column={others[0]}" if others else ": data.tag_column names the column"


def _check_beginnings(path: Path, sentences: list[TaggedSentence]) -> None:
    """Refuse tags of the form IOB1, where an entity begins with I- unless it follows another."""
    inside, begun = [], 0
    for sentence in sentences:
        for previous, tag in pairwise(["O", *sentence.tags]):
            begun += tag.startswith("B-")
            if tag.startswith("I-") and previous[2:] != tag[2:]:
                inside.append(" ".join(sentence.words))
    if len(inside) > begun:
        raise ValueError(
            f"{path}: the tags are IOB1 ({len(inside)} entities begin with I-): convert them to "
            "IOB2, in which each begins with B-, as with nltk's conlltags2tree and tree2conlltags"
        )
    note(f"entities of {path.name} begin with I-", inside, len(inside) + begun)
