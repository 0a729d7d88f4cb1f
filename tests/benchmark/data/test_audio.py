"""Audio: the real spoken digits, folders that are made here, and files that are no audio."""

from __future__ import annotations

import io
import shutil
import tarfile
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
import torchaudio

from as_lightning.benchmark.data.audio import (
    FSDD,
    AudioDataModule,
    AudioFile,
    AudioFolder,
    LabelledClip,
    LogMel,
    SpeechCommands,
    decode,
    fit_length,
    fsdd_recordings,
)
from as_lightning.benchmark.data.download import fetch_checked
from as_lightning.benchmark.data.files import open_tree


def tone(hz: float, rate: int = 8000, seconds: float = 0.5) -> torch.Tensor:
    return 0.5 * torch.sin(2 * torch.pi * hz * torch.arange(round(seconds * rate)) / rate)


def write(path: Path, waveform: torch.Tensor, rate: int = 8000, subtype: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, waveform.numpy(), rate, subtype=subtype)
    return path


class Tones(AudioDataModule):
    """Clips that are made when they are read; ``read_count`` says how often."""

    read_count = 0

    class Tone:
        def __init__(self, hz: float, module: Tones) -> None:
            self.hz, self.module = hz, module

        def read(self) -> tuple[torch.Tensor, int]:
            self.module.read_count += 1
            return tone(self.hz), 8000

    def index_clips(self) -> dict[str, list[LabelledClip]]:
        pitches = {"train": [300, 500, 1000, 2000], "validation": [310, 990], "test": [320, 980]}
        return {
            split: [LabelledClip(self.Tone(hz, self), "low" if hz < 800 else "high") for hz in row]
            for split, row in pitches.items()
        }


SMALL = {"sample_rate": 8000, "seconds": 0.5, "n_mels": 24, "n_fft": 256, "hop_length": 100}


def small(**arguments) -> Tones:
    data = Tones(**{**SMALL, **arguments})
    data.setup()
    return data


# reading


@pytest.mark.parametrize(("name", "subtype"), [("a.wav", "FLOAT"), ("a.wav", "PCM_16"), ("a.flac", "PCM_16")])
def test_a_file_is_decoded_to_the_mean_of_its_channels(tmp_path, name, subtype):
    stereo = torch.stack([tone(440), tone(600)], dim=1)
    path = write(tmp_path / name, stereo, subtype=subtype)
    waveform, rate = decode(path.read_bytes(), "a")
    assert (rate, waveform.shape, waveform.dtype) == (8000, (4000,), torch.float32)
    torch.testing.assert_close(waveform, stereo.mean(1), atol=1e-7 if subtype == "FLOAT" else 2**-15, rtol=0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no readable audio"),
        (b"not audio at all" * 100, "is no readable audio"),
        ("no samples", "has no samples"),
        ("nan", "has samples that are not finite"),
        ("cut", "is no readable audio"),
    ],
)
def test_what_is_no_audio_is_refused_by_name(content, message):
    if isinstance(content, str):
        samples = {"no samples": np.zeros(0), "nan": np.full(9, np.nan), "cut": np.zeros(9)}[content]
        file = io.BytesIO()
        soundfile.write(file, samples, 8000, format="WAV", subtype="FLOAT")
        content = file.getvalue()[:30] if content == "cut" else file.getvalue()
    with pytest.raises(ValueError, match=rf"^dir/x.wav {message}"):
        decode(content, "dir/x.wav")


def test_short_clips_are_followed_by_zeros_and_long_ones_cut_at_their_end():
    waveform = torch.arange(1.0, 6.0)
    assert fit_length(waveform, 7).tolist() == [1, 2, 3, 4, 5, 0, 0]
    assert fit_length(waveform, 3).tolist() == [1, 2, 3]


def test_a_clip_of_another_rate_is_resampled(tmp_path):
    for split in ("train", "test"):
        for name, hz in (("low", 300.0), ("high", 1000.0)):
            for index in range(2):
                write(tmp_path / split / name / f"{index}.wav", tone(hz, rate=44_100, seconds=1.0), 44_100)
    data = AudioFolder(tmp_path, validation_share=0.5, sample_rate=8000, seconds=0.5, features="waveform")
    data.setup()
    waveform, target = data.splits["test"][0]
    assert data.class_names[target] == "high"
    inner = slice(100, -100)  # the filter of the resampling rings at the ends
    torch.testing.assert_close(waveform[inner], tone(1000.0)[inner], atol=2e-3, rtol=0)


# features


@pytest.mark.parametrize("hz", [300.0, 1000.0, 2500.0])
def test_the_log_mel_spectrum_of_a_tone_peaks_in_its_mel_band(hz):
    n_mels, rate = 40, 8000
    spectrum = LogMel(rate, n_mels, n_fft=512, hop_length=128)(tone(hz))
    assert spectrum.shape == (1, n_mels, 4000 // 128 + 1)

    def mel(frequency: float) -> float:
        return 2595 * np.log10(1 + frequency / 700)

    centres = np.linspace(0, mel(rate / 2), n_mels + 2)[1:-1]
    expected = int(np.abs(centres - mel(hz)).argmin())
    assert spectrum[0, :, 5:-5].argmax(dim=0).unique().tolist() == [expected]


def test_silence_is_the_floor_of_the_log_mel_spectrum():
    spectrum = LogMel(8000, 24, n_fft=256, hop_length=100)(torch.zeros(4000))
    torch.testing.assert_close(spectrum, torch.full_like(spectrum, np.log(1e-6)))


def test_log_mel_inputs_are_standardised_by_the_training_split_alone():
    data = small()
    train, test = data.splits["train"].inputs, data.splits["test"].inputs
    assert (train.shape, train.dtype) == ((4, 1, 24, 41), torch.float32)
    assert data.input_shape == (1, 24, 41)
    assert train.mean().item() == pytest.approx(0.0, abs=1e-5)
    assert train.std(correction=0).item() == pytest.approx(1.0, abs=1e-5)
    raw = [LogMel(8000, 24, 256, 100)(tone(hz)) for hz in (300, 500, 1000, 2000, 320)]
    mean, std = torch.stack(raw[:4]).mean(), torch.stack(raw[:4]).std(correction=0)
    torch.testing.assert_close(test[0], (raw[4] - mean) / std, atol=1e-4, rtol=1e-4)
    assert data.input_spec == {"in_channels": 1}


def test_waveform_inputs_are_the_samples_themselves():
    data = small(features="waveform")
    waveforms, targets = next(iter(data.test_dataloader()))
    torch.testing.assert_close(waveforms, torch.stack([tone(320), tone(980)]))
    assert [data.class_names[target] for target in targets] == ["low", "high"]
    assert data.input_spec == {}


@pytest.mark.parametrize("features", ["log_mel", "waveform"])
def test_features_are_the_same_kept_and_computed_at_access(features):
    kept, computed = small(features=features, cache=True), small(features=features, cache=False)
    assert kept.read_count == computed.read_count == 8
    for split in ("train", "validation", "test"):
        for index in range(len(kept.splits[split])):
            assert torch.equal(kept.splits[split][index][0], computed.splits[split][index][0])
    assert kept.read_count == 8
    assert computed.read_count == 16


def test_small_data_are_kept_of_themselves():
    data = small()
    assert isinstance(data.splits["train"].inputs, torch.Tensor)


def test_silent_training_clips_give_finite_features(tmp_path):
    for index in range(10):
        write(tmp_path / "ab"[index % 2] / f"{index}.wav", torch.zeros(4000))
    data = AudioFolder(tmp_path, **SMALL)
    data.setup()
    assert data.splits["train"].inputs.abs().max() < 1e-3


# SpecAugment


def masked(image: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    assert torch.equal(image[image != clean], torch.zeros(int((image != clean).sum())))
    return (image != clean).squeeze(0)


def test_spec_augment_sets_bands_and_frames_to_zero_in_the_training_split_alone():
    data, plain = small(freq_mask=8, time_mask=12), small()
    bands, frames = set(), set()
    for _ in range(100):
        mask = masked(data.splits["train"][0][0], plain.splits["train"][0][0])
        rows, columns = mask.all(dim=1), mask.all(dim=0)
        assert torch.equal(mask, rows[:, None] | columns[None, :])
        for positions in (rows.nonzero().flatten(), columns.nonzero().flatten()):
            assert len(positions) == 0 or positions[-1] - positions[0] == len(positions) - 1
        bands.add(int(rows.sum()))
        frames.add(int(columns.sum()))
    assert bands == set(range(8))
    assert frames == set(range(12))
    for split in ("validation", "test"):
        for index in range(2):
            assert torch.equal(data.splits[split][index][0], plain.splits[split][index][0])
    assert torch.equal(data.splits["train"].inputs, plain.splits["train"].inputs)


def test_the_corrupted_samples_are_shown_without_spec_augment():
    data, plain = small(freq_mask=20, time_mask=40, label_noise=0.5), small()
    inputs, pairs = next(iter(data.corrupted_dataloader()))
    assert len(inputs) == 2
    assert (pairs[:, 0] != pairs[:, 1]).all()
    for image in inputs:
        assert any(torch.equal(image, clean) for clean in plain.splits["train"].inputs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": "mfcc"}, "features must be 'log_mel' or 'waveform', got 'mfcc'"),
        ({"cache": "yes"}, "cache must be True, False or 'auto', got 'yes'"),
        ({"sample_rate": 0}, "sample_rate must be at least 1"),
        ({"n_mels": 0}, "n_mels must be at least 1"),
        ({"n_fft": 1}, "n_fft must be at least 2"),
        ({"hop_length": 0}, "hop_length must be at least 1"),
        ({"freq_mask": -1}, "freq_mask must be at least 0"),
        ({"freq_mask": 25}, "freq_mask must be at most n_mels=24 .*got 25 and 0"),
        ({"time_mask": 42}, "time_mask at most the 41 frames, got 0 and 42"),
        ({"seconds": 0.016}, "more than n_fft // 2 = 128 are needed"),
        ({"seconds": 0.0, "features": "waveform"}, "less than a sample"),
        ({"time_mask": 1, "features": "waveform"}, "are for features='log_mel'"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        Tones(**{**SMALL, **arguments})


# a user's folders


@pytest.fixture
def folder(tmp_path) -> Path:
    """20 clips of ``low`` and 30 of ``high``, each of its own pitch; one lies deeper, one is FLAC; and a text file."""
    root = tmp_path / "tones"
    for index in range(20):
        write(root / "low" / ("deeper" if index == 3 else "") / f"{index}.wav", tone(200 + 10 * index))
    for index in range(30):
        write(root / "high" / f"{index}.{'flac' if index == 3 else 'wav'}", tone(1000 + 10 * index))
    (root / "low" / "notes.txt").write_text("no clip")
    return root


def names(data: AudioFolder) -> dict[str, list[str]]:
    return {split: [row.clip.name for row in rows] for split, rows in data.index_clips().items()}


def test_class_folders_alone_are_split_completely_by_class(folder):
    splits = names(AudioFolder(folder))
    everything = [name for rows in splits.values() for name in rows]
    assert len(set(everything)) == len(everything) == 50
    assert {
        split: [sum(name.startswith(label) for name in rows) for label in ("low", "high")]
        for split, rows in splits.items()
    } == {"train": [16, 24], "validation": [2, 3], "test": [2, 3]}


def test_the_split_depends_on_its_own_seed_and_on_no_other(folder):
    def split(split_seed: int, seed: int) -> dict[str, list[str]]:
        torch.manual_seed(seed)
        np.random.seed(seed)
        return names(AudioFolder(folder, split_seed=split_seed))

    assert split(0, 1) == split(0, 2)
    assert split(0, 1)["test"] != split(1, 1)["test"]


def test_archives_and_a_folder_around_make_no_difference(folder, tmp_path):
    with tarfile.open(tmp_path / "tones.tar.gz", "w:gz") as archive:
        archive.add(folder, arcname="tones")
    shutil.make_archive(str(tmp_path / "flat"), "zip", folder)
    expected = names(AudioFolder(folder))
    assert names(AudioFolder("flat.zip", data_dir=tmp_path)) == expected
    around = names(AudioFolder("tones.tar.gz", data_dir=tmp_path))
    assert {split: [name.removeprefix("tones/") for name in rows] for split, rows in around.items()} == expected


@pytest.mark.parametrize("validation", ["validation", "val", None])
def test_split_folders_are_the_splits(folder, tmp_path, validation):
    root = tmp_path / "splits"
    for split in filter(None, ("train", "test", validation)):
        shutil.copytree(folder, root / split)
    splits = names(AudioFolder(root, validation_share=0.2))
    assert len(splits["test"]) == 50
    assert all(name.startswith("test/") for name in splits["test"])
    if validation:
        assert len(splits["train"]) == len(splits["validation"]) == 50
        assert all(name.startswith(f"{validation}/") for name in splits["validation"])
    else:
        assert (len(splits["train"]), len(splits["validation"])) == (40, 10)
        assert not set(splits["train"]) & set(splits["validation"])


def test_a_class_that_the_training_split_lacks_is_refused_by_name(folder):
    for split in ("train", "test"):
        shutil.copytree(folder, folder.parent / "all" / split)
    shutil.rmtree(folder.parent / "all" / "train" / "low")
    with pytest.raises(ValueError, match="the test split has classes that the train split lacks: low"):
        AudioFolder(folder.parent / "all", **SMALL).setup()


def empty_class(root: Path) -> None:
    (root / "middle").mkdir()


def class_without_clips(root: Path) -> None:
    (root / "middle").mkdir()
    (root / "middle" / "notes.txt").write_text("no clip")


def clip_outside(root: Path) -> None:
    write(root / "stray.wav", tone(400))


def small_class(root: Path) -> None:
    for index in range(2):
        write(root / "middle" / f"{index}.wav", tone(400))


def one_class(root: Path) -> None:
    shutil.rmtree(root / "high")


def train_alone(root: Path) -> None:
    (root / "train").mkdir()
    for name in ("low", "high"):
        (root / name).rename(root / "train" / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (empty_class, "tones/middle: the class folder holds no clips"),
        (class_without_clips, "tones/middle: the class folder holds no clips"),
        (clip_outside, "tones/stray.wav lies in no class folder"),
        (small_class, "class 'middle' has 2 clips, too few for the splits train, validation, test"),
        (one_class, "expected a folder for each class, found one: 'low'"),
        (train_alone, "expected the folders train, test and .*, found no clips in test"),
    ],
)
def test_folders_that_are_not_as_described_are_refused_by_name(folder, change, message):
    change(folder)
    with pytest.raises(ValueError, match=message):
        AudioFolder(folder).index_clips()


def test_a_class_folder_of_an_archive_that_has_no_clips_is_refused_by_name(folder, tmp_path):
    class_without_clips(folder)
    shutil.make_archive(str(tmp_path / "tones"), "zip", folder)
    with pytest.raises(ValueError, match=r"tones.zip/middle: the class folder holds no clips"):
        AudioFolder(tmp_path / "tones.zip").index_clips()


def test_a_bad_validation_share_is_refused():
    with pytest.raises(ValueError, match=r"validation_share must be a share in \(0, 1\), got 1.0"):
        AudioFolder("x", validation_share=1.0)


def test_nothing_at_the_path_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing does not exist"):
        AudioFolder("missing", data_dir=tmp_path).setup()


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("features", ["log_mel", "waveform"])
def test_bad_files_are_counted_and_the_first_five_named_before_training(folder, cache, features):
    for index in range(7):
        (folder / "low" / f"bad{index}.wav").write_bytes(b"RIFF" if index else b"")
    arguments = {**SMALL, "features": features, "cache": cache}
    with pytest.raises(ValueError, match="7 of 57 audio files cannot be used: ") as caught:
        AudioFolder(folder, **arguments).setup()
    message = str(caught.value)
    assert message.count("is no readable audio") == message.count("tones/low/bad") == 5
    assert message.endswith("; and 2 more")


def test_label_noise_changes_training_labels_alone(folder):
    clean, noisy = AudioFolder(folder, **SMALL), AudioFolder(folder, label_noise=0.25, **SMALL)
    clean.setup()
    noisy.setup()
    assert (clean.splits["train"].targets != noisy.splits["train"].targets).sum() == 10
    assert torch.equal(clean.splits["train"].targets, noisy.true_targets)
    for split in ("validation", "test"):
        assert torch.equal(clean.splits[split].targets, noisy.splits[split].targets)


@pytest.mark.parametrize("cache", [True, False])
def test_loader_processes_give_the_same_batches(folder, cache):
    batches = []
    for num_workers in (0, 1):
        data = AudioFolder(folder, cache=cache, num_workers=num_workers, **SMALL)
        data.setup()
        batches.append(list(data.test_dataloader()))
    for (inputs, targets), (others, other_targets) in zip(*batches, strict=True):
        assert torch.equal(inputs, others)
        assert torch.equal(targets, other_targets)


# Free Spoken Digits


@pytest.fixture(scope="module")
def fsdd(real_data) -> FSDD:
    data = FSDD(data_dir=real_data, seconds=0.8, n_fft=256, hop_length=200)
    data.prepare_data()
    data.setup("fit")
    return data


def test_fsdd_has_its_published_split(fsdd):
    assert {split: len(rows) for split, rows in fsdd.splits.items()} == {
        "train": 2400,
        "validation": 300,
        "test": 300,
    }
    assert fsdd.class_names == list("0123456789")
    for split in fsdd.splits.values():
        assert split.targets.bincount().tolist() == [len(split) // 10] * 10
    clips = {split: {row.clip.name for row in rows} for split, rows in fsdd.index_clips().items()}
    assert len(set.union(*clips.values())) == 3000
    assert {name.rpartition("_")[2] for name in clips["test"]} == {f"{index}.wav" for index in range(5)}
    assert {name.rpartition("_")[2] for name in clips["validation"]} == {f"{index}.wav" for index in range(5, 10)}


def test_an_fsdd_input_is_that_of_its_recording(fsdd):
    row = fsdd.index_clips()["test"][123]
    waveform, rate = row.clip.read()
    assert rate == 8000
    log_mel = LogMel(8000, 40, 256, 200)(fit_length(waveform, 6400))
    features, target = fsdd.splits["test"][123]
    assert fsdd.class_names[target] == row.label == Path(row.clip.name).name[0]
    centred = (log_mel - log_mel.mean()) / log_mel.std()
    torch.testing.assert_close((features - features.mean()) / features.std(), centred, atol=1e-4, rtol=1e-4)


def test_the_nearest_training_clip_mostly_says_the_same_digit(fsdd):
    train, test = (fsdd.splits[split].inputs.flatten(1) for split in ("train", "test"))
    nearest = torch.cdist(test, train).argmin(dim=1)
    accuracy = (fsdd.splits["train"].targets[nearest] == fsdd.splits["test"].targets).float().mean()
    assert accuracy > 0.8  # chance is 0.1


def test_an_unpacked_fsdd_is_read_too_and_one_changed_byte_is_found(real_data, tmp_path, fsdd):
    with tarfile.open(real_data / "fsdd.tar.gz") as archive:
        archive.extractall(tmp_path / "fsdd", filter="data")
    data = FSDD(data_dir=tmp_path)
    data.prepare_data()
    unpacked = [row.clip.read()[0] for row in data.index_clips()["test"][:5]]
    packed = [row.clip.read()[0] for row in fsdd.index_clips()["test"][:5]]
    assert all(torch.equal(one, other) for one, other in zip(unpacked, packed, strict=True))
    recording = tmp_path / "fsdd" / "recordings" / "3_theo_17.wav"
    content = bytearray(recording.read_bytes())
    content[-1] ^= 1
    recording.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"the recordings are not those of release 1\.0\.10: expected SHA-256 1801eae0"
    ):
        data.setup()


def test_a_recording_with_another_name_is_refused(tmp_path):
    for name in ("0_theo_0.wav", "0_theo.wav"):
        write(tmp_path / "fsdd" / "recordings" / name, tone(300))
    with pytest.raises(ValueError, match=r"fsdd/recordings/0_theo.wav: expected a name like"):
        FSDD(data_dir=tmp_path).setup()


def test_a_folder_without_recordings_is_refused(tmp_path):
    write(tmp_path / "0_theo_0.wav", tone(300))
    with pytest.raises(ValueError, match="expected a folder 'recordings' with WAV files, found none"):
        list(fsdd_recordings(open_tree(tmp_path)))


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    def log_message(self, *args):
        pass


@pytest.fixture
def home(tmp_path):
    """A folder on the web: its path and address."""
    (tmp_path / "home").mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "home"))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield tmp_path / "home", f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_missing_fsdd_is_downloaded_whatever_its_root_folder_is_called(home, real_data, tmp_path, monkeypatch):
    folder, url = home
    with (
        tarfile.open(real_data / "fsdd.tar.gz") as given,
        tarfile.open(folder / "v1.0.10.tar.gz", "w") as archive,
    ):
        for member in given:
            content = given.extractfile(member)
            member.name = f"free-spoken-digit-dataset-1.0.10/{member.name}"
            archive.addfile(member, content)
    monkeypatch.setattr(FSDD, "URL", f"{url}/v1.0.10.tar.gz")
    data = FSDD(data_dir=tmp_path / "data")
    data.prepare_data()
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["fsdd.tar.gz"]
    assert {split: len(rows) for split, rows in data.index_clips().items()} == {
        "train": 2400,
        "validation": 300,
        "test": 300,
    }


def test_a_downloaded_fsdd_that_is_another_is_refused_and_leaves_nothing(home, tmp_path, monkeypatch):
    folder, url = home
    file = write(tmp_path / "0_theo_0.wav", tone(300))
    with tarfile.open(folder / "other.tar.gz", "w:gz") as archive:
        archive.add(file, arcname="root/recordings/0_theo_0.wav")
    monkeypatch.setattr(FSDD, "URL", f"{url}/other.tar.gz")
    with pytest.raises(ValueError, match=r"are not those of release 1\.0\.10"):
        FSDD(data_dir=tmp_path / "data").prepare_data()
    assert list((tmp_path / "data").iterdir()) == []


def test_a_checked_file_that_is_there_is_not_downloaded(tmp_path):
    (tmp_path / "set.zip").write_bytes(b"mine")

    def refuse(path: Path) -> None:
        raise AssertionError(path)

    assert fetch_checked("set.zip", "http://127.0.0.1:9/set.zip", refuse, tmp_path) == tmp_path / "set.zip"


def test_without_a_connection_the_error_says_where_to_put_the_recordings(tmp_path, monkeypatch):
    monkeypatch.setattr(FSDD, "URL", "http://127.0.0.1:9/fsdd.tar.gz")
    with pytest.raises(RuntimeError, match=r"fsdd.tar.gz is not in data_dir=.* AS_LIGHTNING_DATA"):
        FSDD(data_dir=tmp_path / "data").prepare_data()
    assert list((tmp_path / "data").iterdir()) == []


# Speech Commands


def speech_commands(root: Path) -> Path:
    """A small data set of Speech Commands' layout, in ``root`` itself."""
    lists: dict[str, list[str]] = {"validation_list.txt": [], "testing_list.txt": []}
    for word, hz in (("yes", 300.0), ("no", 1000.0)):
        for speaker in range(6):
            name = f"{word}/{speaker:08x}_nohash_0.wav"
            write(root / name, tone(hz + speaker, rate=16_000, seconds=1.0), 16_000)
            if speaker < 2:
                lists["testing_list.txt" if speaker else "validation_list.txt"].append(name)
    write(root / "_background_noise_" / "pink.wav", torch.randn(8000) / 10, 16_000)
    for name, lines in lists.items():
        (root / name).write_text("".join(f"{line}\n" for line in lines))
    return root


def test_speech_commands_has_the_splits_of_its_lists(tmp_path):
    speech_commands(tmp_path / "SpeechCommands" / "speech_commands_v0.02")
    data = SpeechCommands(data_dir=tmp_path, hop_length=320)
    data.prepare_data()
    data.setup()
    assert data.class_names == ["no", "yes"]
    speakers = {
        split: sorted({Path(row.clip.name).name[:8] for row in rows}) for split, rows in data.index_clips().items()
    }
    assert speakers == {
        "train": [f"{speaker:08x}" for speaker in range(2, 6)],
        "validation": ["00000000"],
        "test": ["00000001"],
    }
    published = torchaudio.datasets.SPEECHCOMMANDS(tmp_path, subset="training")
    assert [published.get_metadata(index)[2] for index in range(8)] == [
        data.class_names[target] for target in data.splits["train"].targets
    ]


def test_a_listed_clip_that_is_missing_is_named_before_training(tmp_path):
    root = speech_commands(tmp_path / "SpeechCommands" / "speech_commands_v0.02")
    (root / "yes" / "00000001_nohash_0.wav").unlink()
    with pytest.raises(ValueError, match=r"1 of 12 audio files .*yes/00000001_nohash_0.wav cannot be read"):
        SpeechCommands(data_dir=tmp_path).setup()


def test_missing_speech_commands_are_downloaded_and_unpacked(home, tmp_path, monkeypatch):
    folder, url = home
    with tarfile.open(folder / "speech_commands_v0.02.tar.gz", "w:gz") as archive:
        archive.add(speech_commands(tmp_path / "made"), arcname=".")
    monkeypatch.setattr(SpeechCommands, "URL", f"{url}/speech_commands_v0.02.tar.gz")
    data = SpeechCommands(data_dir=tmp_path / "data")
    data.prepare_data()
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["SpeechCommands"]
    assert {split: len(rows) for split, rows in data.index_clips().items()} == {
        "train": 8,
        "validation": 2,
        "test": 2,
    }


def test_a_broken_download_of_speech_commands_leaves_no_folder_that_passes_for_whole(home, tmp_path, monkeypatch):
    folder, url = home
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        archive.add(speech_commands(tmp_path / "made"), arcname=".")
    (folder / "speech_commands_v0.02.tar.gz").write_bytes(made.getvalue()[: len(made.getvalue()) // 2])
    monkeypatch.setattr(SpeechCommands, "URL", f"{url}/speech_commands_v0.02.tar.gz")
    with pytest.raises(RuntimeError, match=r"Speech Commands could not be downloaded: .* AS_LIGHTNING_DATA"):
        SpeechCommands(data_dir=tmp_path / "data").prepare_data()
    assert list((tmp_path / "data").iterdir()) == []


def test_an_archive_member_is_read_where_it_lies(tmp_path):
    write(tmp_path / "a.wav", tone(300))
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        archive.write(tmp_path / "a.wav", "inner/a.wav")
    waveform, rate = AudioFile(open_tree(tmp_path / "set.zip"), "inner/a.wav").read()
    assert rate == 8000
    torch.testing.assert_close(waveform, tone(300), atol=2**-15, rtol=0)
