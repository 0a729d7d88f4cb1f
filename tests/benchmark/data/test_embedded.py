"""The embedded data: digits and docstrings."""

from __future__ import annotations

import sys
from collections import Counter

import torch
from harness.data_settings import TEXT

from as_lightning.benchmark.data.digits import Digits
from as_lightning.benchmark.data.text.standard_library import Docstrings, docstring_paragraphs, source_files


def test_digits_are_split_disjoint_complete_and_stratified_and_a_batch_is_images_in_the_unit_interval():
    data = Digits(batch_size=16)
    data.setup()
    sizes = {name: len(split) for name, split in data.splits.items()}
    assert sizes == {"train": 1257, "validation": 180, "test": 360}
    images = torch.cat([split.inputs.flatten(1) for split in data.splits.values()])
    assert len(images.unique(dim=0)) == len(images)
    for split in data.splits.values():
        shares = split.targets.bincount() / len(split)
        assert shares.min() > 0.08
        assert shares.max() < 0.12
    images, targets = next(iter(data.train_dataloader()))
    assert (images.shape, images.dtype, targets.dtype) == ((16, 1, 8, 8), torch.float32, torch.int64)
    assert 0.0 <= images.min() < images.max() <= 1.0
    assert data.num_classes == 10


def test_docstrings_are_split_80_10_10_and_classes_are_public_modules_large_enough_and_in_every_split():
    docstrings = Docstrings(**TEXT).read_splits()
    sizes = Counter(sentence.label for rows in docstrings.values() for sentence in rows)
    assert len(sizes) > 50
    assert min(sizes.values()) >= 30
    assert all(module in sys.stdlib_module_names and not module.startswith("_") for module in sizes)
    assert all({sentence.label for sentence in rows} == set(sizes) for rows in docstrings.values())
    total = sizes.total()
    assert len({sentence for rows in docstrings.values() for sentence in rows}) == total
    assert [round(len(docstrings[name]) / total, 2) for name in ("train", "validation", "test")] == [0.8, 0.1, 0.1]


def test_paragraphs_are_read_without_importing_and_leave_out_tests_and_other_grammars(tmp_path):
    package = tmp_path / "pack"
    (package / "tests").mkdir(parents=True)
    (package / "__init__.py").write_text('"""One\nparagraph.\n\nAnother."""\nraise SystemExit\n')
    (package / "old.py").write_text("print 'python 2'\n")
    (package / "tests" / "test_it.py").write_text('"""Not this."""\n')
    (package / "code.py").write_text(
        'class A:\n    """Of a class."""\n    async def f(self):\n        """Of a method."""\n'
    )
    paragraphs = [text for file in source_files(tmp_path) for text in docstring_paragraphs(file) if text]
    assert sorted(paragraphs) == ["Another.", "Of a class.", "Of a method.", "One paragraph."]
