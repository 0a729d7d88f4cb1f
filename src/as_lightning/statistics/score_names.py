"""What the name of a score says of its direction and unit, by short lists of exact names."""

from __future__ import annotations

import re
from typing import Literal

# of these a score in [0, 1] is a share, whose points are percents
OF_SHARES = """
    accuracy acc top1 top5 top_1 top_5 balanced_accuracy f1 f1_score macro_f1 micro_f1 f1_macro
    f1_micro span_f1 precision recall auc auroc average_precision map iou miou dice exact_match em
    hit_rate win_rate success_rate
"""
OF_MORE = "r2 mcc kappa bleu rouge meteor psnr ssim reward return"
OF_LESS = """
    loss cross_entropy nll error error_rate perplexity ppl mse rmse mae wer cer bpb bits_per_byte
    brier ece fid
"""
SHARES, LESS = OF_SHARES.split(), OF_LESS.split()
MORE = [*SHARES, *OF_MORE.split()]
# what may stand before the name of a score
BEFORE = ("summary", "metrics", "test", "val", "valid", "validation", "eval", "dev")


def plain_name(score: str) -> str:
    """Return a score's name in lower case, without the split or the tracker's prefix.

    >>> plain_name("val/Macro F1"), plain_name("summary.test_acc"), plain_name("val_loss")
    ('macro_f1', 'acc', 'loss')
    """
    name = re.sub("[/ .-]", "_", str(score).strip().lower())
    for prefix in BEFORE:
        name = name.removeprefix(f"{prefix}_")
    return name.partition("_dataloader_idx_")[0]  # as Lightning ends it


def known_direction(score: str) -> Literal["max", "min"] | None:
    """Return whether more or less of a score is better, None where its name is in no list.

    >>> known_direction("test/accuracy"), known_direction("val_bpb"), known_direction("1-acc")
    ('max', 'min', None)
    """
    if plain_name(score) in MORE:
        return "max"
    return "min" if plain_name(score) in LESS else None


def known_unit(score: str) -> Literal["points", "raw"]:
    """Return the unit of a score by its name: points, which are percents, of an accuracy alone.

    >>> known_unit("val/accuracy"), known_unit("loss"), known_unit("my_reward")
    ('points', 'raw', 'raw')
    """
    return "points" if plain_name(score) in SHARES else "raw"
