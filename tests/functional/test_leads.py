"""The lead of the target, against a loop over the samples."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from as_lightning.functional.counts import MaskingCounts
from as_lightning.functional.cross_entropy import as_cross_entropy
from as_lightning.functional.leads import target_leads


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 8), classes=st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_leads_are_those_of_a_loop(seed, rows, classes):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(2, (rows, classes), generator=generator)
    target = torch.randint(classes, (rows,), generator=generator)
    single, several = [], []
    for row in range(rows):
        p = logits[row].exp() / logits[row].exp().sum()
        single.append(p[target[row]] - max(p[i] for i in range(classes) if i != target[row]))
        positive = [p[i] for i in range(classes) if labels[row, i]]
        negative = [p[i] for i in range(classes) if not labels[row, i]]
        if positive and negative:
            several.append(min(positive) - max(negative))
    torch.testing.assert_close(target_leads(logits, target), torch.stack(single))
    torch.testing.assert_close(
        target_leads(logits, labels), torch.tensor(several, dtype=torch.float64)
    )


def test_unknown_labels_and_ignored_rows_have_no_part_in_a_lead():
    logits = torch.tensor([[3.0, 1.0, 0.0, 2.0], [1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 0.0]])
    target = torch.tensor([[1, 0, 0, -100], [1, -100, 1, -100], [-100, -100, -100, -100]])
    # the others have no known positive or negative
    expected = target_leads(logits[:1, :3], target[:1, :3])
    torch.testing.assert_close(target_leads(logits, target), expected)
    torch.testing.assert_close(target_leads(logits, target.float()), expected)
    single = torch.tensor([0, -100, 2])
    torch.testing.assert_close(target_leads(logits, single), target_leads(logits[::2], single[::2]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_as_softmax_masks_the_samples_whose_lead_is_above_the_margin(dtype):
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(200, 5, generator=generator)).to(dtype)
    target = torch.randint(5, (200,), generator=generator)
    counts: MaskingCounts = as_cross_entropy(logits, target, delta=0.3, return_counts=True)[1]
    assert int((target_leads(logits, target) > 0.3).sum()) == int(counts.masked_samples) > 0
