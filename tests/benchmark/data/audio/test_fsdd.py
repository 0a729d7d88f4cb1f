"""Free Spoken Digits: the real recordings, and others that are refused."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import torch
from harness.data_settings import AUDIO
from harness.made_files import tone, write_clip

from as_lightning.benchmark.data.audio.data_module import clip_features, decode_clip
from as_lightning.benchmark.data.audio.published import FSDD


@pytest.fixture(scope="module")
def fsdd(real_data) -> FSDD:
    data = FSDD(data_dir=real_data, **(AUDIO | {"seconds": 0.8, "hop_length": 200}))
    data.setup()
    return data


def test_fsdd_has_its_published_split(fsdd):
    assert {split: len(rows) for split, rows in fsdd.splits.items()} == {"train": 2400, "validation": 300, "test": 300}
    assert fsdd.class_names == list("0123456789")
    for split in fsdd.splits.values():
        assert split.targets.bincount().tolist() == [len(split) // 10] * 10
    clips = {split: {row.place for row in rows} for split, rows in fsdd.index().items()}
    assert len(set.union(*clips.values())) == 3000
    assert {name.rpartition("_")[2] for name in clips["test"]} == {f"{index}.wav" for index in range(5)}
    assert {name.rpartition("_")[2] for name in clips["validation"]} == {f"{index}.wav" for index in range(5, 10)}


def test_an_fsdd_input_is_that_of_its_recording(fsdd):
    row = fsdd.index()["test"][123]
    waveform, rate = decode_clip(row.read())
    assert rate == 8000
    log_mel = clip_features((waveform, rate), 8000, 6400, fsdd.mel)
    features, target = fsdd.splits["test"][123]
    assert fsdd.class_names[target] == row.label == Path(row.place).name[0]
    centred = (log_mel - log_mel.mean()) / log_mel.std()
    torch.testing.assert_close((features - features.mean()) / features.std(), centred, atol=1e-4, rtol=1e-4)


def test_a_missing_fsdd_is_downloaded_whatever_its_root_folder_is_called(server, real_data, tmp_path, monkeypatch):
    with tarfile.open(real_data / "fsdd.tar.gz") as given, tarfile.open(server.home / "v1.0.10.tar.gz", "w") as archive:
        for member in given:
            content = given.extractfile(member)
            member.name = f"free-spoken-digit-dataset-1.0.10/{member.name}"
            archive.addfile(member, content)
    monkeypatch.setitem(FSDD.FILES, "all", FSDD.FILES["all"]._replace(url=f"{server.url}/v1.0.10.tar.gz"))
    data = FSDD(data_dir=tmp_path / "data", **AUDIO)
    assert [len(rows) for rows in data.index().values()] == [2400, 300, 300]
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["fsdd.tar.gz"]


def test_a_downloaded_fsdd_that_is_another_is_refused(server, tmp_path, monkeypatch):
    file = write_clip(tmp_path / "0_theo_0.wav", tone(300))
    with tarfile.open(server.home / "other.tar.gz", "w:gz") as archive:
        archive.add(file, arcname="root/recordings/0_theo_0.wav")
    monkeypatch.setitem(FSDD.FILES, "all", FSDD.FILES["all"]._replace(url=f"{server.url}/other.tar.gz"))
    with pytest.raises(ValueError, match=r"are not those of release 1\.0\.10.* of 1\. .*delete them"):
        FSDD(data_dir=tmp_path / "data", **AUDIO).setup()
