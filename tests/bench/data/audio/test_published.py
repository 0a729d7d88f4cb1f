"""The published recordings: their splits, downloaded, packed and unpacked, and others that are
refused.
"""

import hashlib
import shutil
import tarfile
from pathlib import Path

import pytest
import torch
from harness.data_settings import AUDIO
from harness.made_files import tone, write_clip

from as_lightning.bench.data.audio.data_module import clip_features
from as_lightning.bench.data.audio.published import FSDD, SpeechCommands


def test_fsdd_has_its_published_split_and_each_input_is_that_of_its_recording(real_data):
    fsdd = FSDD(data_dir=real_data, **(AUDIO | {"seconds": 0.8, "hop_length": 200}))
    fsdd.setup()
    assert {split: len(rows) for split, rows in fsdd.splits.items()} == {
        "train": 2400,
        "validation": 300,
        "test": 300,
    }
    assert fsdd.class_names == list("0123456789")
    for split in fsdd.splits.values():
        assert split.targets.bincount().tolist() == [len(split) // 10] * 10
    clips = {split: {row.place for row in rows} for split, rows in fsdd.index().items()}
    assert len(set.union(*clips.values())) == 3000
    for split, takes in (("test", range(5)), ("validation", range(5, 10))):
        assert {name.rpartition("_")[2] for name in clips[split]} == {
            f"{take}.wav" for take in takes
        }
    drawn = FSDD(data_dir=real_data, split_seed=1, **AUDIO).index()
    assert {split: len(rows) for split, rows in drawn.items()} == {
        split: len(rows) for split, rows in clips.items()
    }
    assert {row.place for row in drawn["test"]} != clips["test"]
    row, (features, target) = fsdd.index()["test"][123], fsdd.splits["test"][123]
    assert fsdd.class_names[target] == row.label == Path(row.place).name[0]
    log_mel = clip_features(row.read(), sample_rate=8000, samples=6400, mel=fsdd.mel)
    centred, expected = ((values - values.mean()) / values.std() for values in (features, log_mel))
    torch.testing.assert_close(centred, expected, atol=1e-4, rtol=1e-4)


def served(server, monkeypatch, archive: Path) -> None:
    """Let FSDD be downloaded from an archive of the server."""
    monkeypatch.setitem(
        FSDD.FILES, "all", FSDD.FILES["all"]._replace(url=f"{server.url}/{archive.name}")
    )


def test_a_downloaded_fsdd_that_is_another_is_refused(server, tmp_path, monkeypatch):
    path = server.home / "other.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(
            write_clip(tmp_path / "0_theo_0.wav", tone(300)), arcname="root/recordings/0_theo_0.wav"
        )
    served(server, monkeypatch, path)
    with pytest.raises(ValueError, match=r"are not those of release 1\.0\.10.* of 1: delete"):
        FSDD(data_dir=tmp_path / "data", **AUDIO).setup()


@pytest.mark.parametrize("packed", [False, True])
def test_speech_commands_has_the_splits_of_its_lists(tmp_path, monkeypatch, packed):
    root = tmp_path / "SpeechCommands" / "speech_commands_v0.02"
    lists: dict[str, list[str]] = {"validation_list.txt": [], "testing_list.txt": []}
    for word, hz in (("yes", 300.0), ("no", 1000.0)):
        for speaker in range(6):
            name = f"{word}/{speaker:08x}_nohash_0.wav"
            write_clip(root / name, tone(hz + speaker, rate=16_000, seconds=1.0), 16_000)
            if speaker < 2:
                lists["testing_list.txt" if speaker else "validation_list.txt"].append(name)
    write_clip(root / "_background_noise_" / "pink.wav", torch.randn(8000) / 10, 16_000)
    for name, lines in lists.items():
        (root / name).write_text("".join(f"{line}\n" for line in lines))
    if packed:
        archive = Path(shutil.make_archive(str(tmp_path / root.name), "gztar", root))
        shutil.rmtree(root)
        sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
        monkeypatch.setitem(
            SpeechCommands.FILES, "all", SpeechCommands.FILES["all"]._replace(checksum=sha256)
        )
    data = SpeechCommands(data_dir=tmp_path, **(AUDIO | {"hop_length": 320}))
    data.prepare_data()
    data.setup()
    assert data.class_names == ["no", "yes"]
    speakers = {
        split: {int(Path(row.place).name[:8], 16) for row in rows}
        for split, rows in data.index().items()
    }
    assert speakers == {"train": {2, 3, 4, 5}, "validation": {0}, "test": {1}}
    assert [len(split) for split in data.splits.values()] == [8, 2, 2]
