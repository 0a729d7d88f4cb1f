"""Speech Commands: its lists, and downloads that break off."""

from __future__ import annotations

import io
import tarfile
from functools import partial
from pathlib import Path

import pytest
import torch
from harness.data_settings import AUDIO
from harness.made_files import tone, write_clip

from as_lightning.benchmark.data.audio.published import SpeechCommands


def speech_commands(root: Path) -> Path:
    """A small data set of Speech Commands' layout, in ``root`` itself."""
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
    return root


def test_speech_commands_has_the_splits_of_its_lists(tmp_path):
    speech_commands(tmp_path / "SpeechCommands" / "speech_commands_v0.02")
    data = partial(SpeechCommands, **AUDIO)(data_dir=tmp_path, hop_length=320)
    data.prepare_data()
    data.setup()
    assert data.class_names == ["no", "yes"]
    speakers = {split: sorted({Path(row.place).name[:8] for row in rows}) for split, rows in data.index_clips().items()}
    assert speakers == {
        "train": [f"{speaker:08x}" for speaker in range(2, 6)],
        "validation": ["00000000"],
        "test": ["00000001"],
    }


def test_missing_speech_commands_are_downloaded_and_unpacked(server, tmp_path, monkeypatch):
    with tarfile.open(server.home / "speech_commands_v0.02.tar.gz", "w:gz") as archive:
        archive.add(speech_commands(tmp_path / "made"), arcname=".")
    monkeypatch.setattr(SpeechCommands, "URL", f"{server.url}/speech_commands_v0.02.tar.gz")
    data = partial(SpeechCommands, **AUDIO)(data_dir=tmp_path / "data")
    data.prepare_data()
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["SpeechCommands"]
    assert [len(rows) for rows in data.index_clips().values()] == [8, 2, 2]


def test_a_broken_download_of_speech_commands_leaves_no_folder_that_passes_for_whole(server, tmp_path, monkeypatch):
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        archive.add(speech_commands(tmp_path / "made"), arcname=".")
    (server.home / "speech_commands_v0.02.tar.gz").write_bytes(made.getvalue()[: len(made.getvalue()) // 2])
    monkeypatch.setattr(SpeechCommands, "URL", f"{server.url}/speech_commands_v0.02.tar.gz")
    with pytest.raises(RuntimeError, match=r"Speech Commands could not be downloaded: .* AS_LIGHTNING_DATA"):
        partial(SpeechCommands, **AUDIO)(data_dir=tmp_path / "data").prepare_data()
    assert list((tmp_path / "data").iterdir()) == []
