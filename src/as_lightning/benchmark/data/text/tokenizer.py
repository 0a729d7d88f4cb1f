"""Tokenisers: fitted on the training split, or those of pretrained models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

PADDING, UNKNOWN = "[PAD]", "[UNK]"
TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model")


def fit_tokenizer(texts: Iterable[str] | Iterable[Sequence[str]], vocab_size: int, lowercase: bool = True) -> Tokenizer:
    """A byte-pair tokeniser of at most ``vocab_size`` tokens; padding is token 0.

    With ``lowercase`` accents are stripped too.

    Byte-pair merges without a continuing-subword prefix: with one, as WordPiece has, the library breaks ties in the
    order of a hash map, and two fits on the same texts differ.
    """
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=[PADDING, UNKNOWN], show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def pretrained_tokenizer(name: str) -> tuple[Tokenizer, int]:
    """The tokeniser of a Hugging Face model, by name or local path, and its padding token.

    Raises:
        ImportError: if transformers is not installed.
        ValueError: if there is no such model, the folder has no tokeniser, or it is not of the fast kind or pads with
            nothing.
    """
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ImportError(
            'a pretrained tokenizer needs transformers: pip install "as-lightning[pretrained]"'
        ) from error
    folder = Path(name)
    # transformers makes an empty tokeniser for a folder without one
    if folder.is_dir() and not any(any(folder.glob(pattern)) for pattern in TOKENIZER_FILES):
        raise ValueError(
            f"tokenizer={name!r}: the folder has no tokenizer ({', '.join(TOKENIZER_FILES)}): save the model's own "
            "there"
        )
    try:
        found = AutoTokenizer.from_pretrained(name, use_fast=True)
    except (OSError, ValueError) as error:
        raise ValueError(
            f"tokenizer={name!r} is no Hugging Face model or local folder with a tokeniser: {error}"
        ) from None
    if not found.is_fast or found.pad_token_id is None:
        raise ValueError(f"tokenizer={name!r}: expected a fast tokeniser with a padding token")
    return found.backend_tokenizer, int(found.pad_token_id)
