"""The Free Spoken Digit Dataset: its splits, and another archive that is refused."""

import tarfile
from pathlib import Path

import pytest
from harness.data_settings import AUDIO
from harness.made_files import tone, write_clip

from as_lightning.bench.data.fsdd import FSDD


def test_fsdd_has_its_published_split_and_another_by_seed(real_data):
    fsdd = FSDD(path="fsdd.tar.gz", data_dir=real_data, **(AUDIO | {"hop_length": 400}))
    fsdd.setup()
    sizes = {"train": 2400, "validation": 300, "test": 300}
    assert {split: len(rows) for split, rows in fsdd.splits.items()} == sizes
    assert fsdd.class_names == list("0123456789")
    for split in fsdd.splits.values():
        assert split.targets.bincount().tolist() == [len(split) // 10] * 10
    clips = {split: set(fsdd.example_names(split)) for split in sizes}
    assert len(set.union(*clips.values())) == 3000
    for split, takes in (("test", range(5)), ("validation", range(5, 10))):
        assert {name.rpartition("_")[2] for name in clips[split]} == {f"{n}.wav" for n in takes}
    drawn = FSDD(path="fsdd.tar.gz", data_dir=real_data, split_seed=1, **AUDIO).index()
    assert {split: len(rows) for split, rows in drawn.items()} == sizes
    assert {row.name for row in drawn["test"]} != clips["test"]
    names = zip(fsdd.example_names("test"), fsdd.splits["test"].targets, strict=True)
    assert all(Path(name).name[0] == fsdd.class_names[target] for name, target in names)


def test_an_archive_that_is_another_or_damaged_is_refused(tmp_path):
    path = tmp_path / "other.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        clip = write_clip(tmp_path / "0_theo_0.wav", tone(300))
        archive.add(clip, arcname="root/recordings/0_theo_0.wav")
    with pytest.raises(ValueError, match=r"3,000 recordings of release .*, found 1: delete"):
        FSDD(path=path, **AUDIO).setup()
    for content in (path.read_bytes()[:-50], b"no archive"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"3,000 recordings of release .*, found 0: delete"):
            FSDD(path=path, **AUDIO).setup()
