"""SST-5's real files, and malformed lines."""

from __future__ import annotations

from functools import partial

import pytest
from harness.data_settings import TEXT

from as_lightning.benchmark.data.text.published import SST5, read_fasttext


def test_sst5_has_its_published_sizes_and_classes(real_data):
    data = partial(SST5, **TEXT)(data_dir=real_data)
    data.prepare_data()
    data.setup()
    assert [len(data.splits[split]) for split in ("train", "validation", "test")] == [8_544, 1_101, 2_210]
    assert data.class_names == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("line", ["no tab", "label\ttext", "__label__1\t ", ""])
def test_a_malformed_fasttext_line_is_refused_with_file_and_line(tmp_path, line):
    path = tmp_path / "set.txt"
    path.write_text(f"__label__1\tfine\n{line}\n__label__1\tfine\n")
    with pytest.raises(ValueError, match=r"set.txt:2: expected '__label__NAME<TAB>text', got"):
        list(read_fasttext(path))
