"""Speech Commands: the splits of its lists, unpacked and packed."""

from __future__ import annotations

import hashlib
import shutil
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


@pytest.mark.parametrize("packed", [False, True])
def test_speech_commands_has_the_splits_of_its_lists(tmp_path, monkeypatch, packed):
    made = speech_commands(tmp_path / "SpeechCommands" / "speech_commands_v0.02")
    if packed:
        archive = Path(shutil.make_archive(str(tmp_path / "speech_commands_v0.02"), "gztar", made))
        shutil.rmtree(made)
        sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
        monkeypatch.setitem(SpeechCommands.FILES, "all", SpeechCommands.FILES["all"]._replace(checksum=sha256))
    data = SpeechCommands(data_dir=tmp_path, **(AUDIO | {"hop_length": 320}))
    data.prepare_data()
    data.setup()
    assert data.class_names == ["no", "yes"]
    speakers = {split: sorted({Path(row.place).name[:8] for row in rows}) for split, rows in data.index().items()}
    assert speakers == {
        "train": [f"{speaker:08x}" for speaker in range(2, 6)],
        "validation": ["00000000"],
        "test": ["00000001"],
    }
    assert [len(split) for split in data.splits.values()] == [8, 2, 2]
