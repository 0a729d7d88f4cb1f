"""Texts with what they are labelled with."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class LabelledText(Protocol):
    """A text with what it is labelled with."""

    @property
    def text(self) -> str: ...
    @property
    def label(self) -> Any: ...


class Sentence(NamedTuple):
    """A text and the name of its class."""

    text: str
    label: str


class MultilabelSentence(NamedTuple):
    """A text and the indices of its classes."""

    text: str
    label: tuple[int, ...]


class TaggedSentence(NamedTuple):
    """The words of a sentence and a tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
