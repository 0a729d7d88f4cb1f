"""The samples of a run that were never masked: what the run records, and what the command lists."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness.data_settings import AUDIO, IMAGES, TEXT
from harness.made_files import tone, write_clip, write_images
from harness.scripted_masking import quiet_trainer
from harness.sleeping_samples import SAMPLES, SleepingClassifier, numbered_loader
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from torch import Tensor

from as_lightning import MaskedSampleSkipping
from as_lightning.benchmark.commands.hard_samples import main
from as_lightning.benchmark.data.audio.audio_folder import AudioFolder
from as_lightning.benchmark.data.base import BenchmarkDataModule
from as_lightning.benchmark.data.digits import Digits
from as_lightning.benchmark.data.image.image_folder import ImageFolder
from as_lightning.benchmark.data.text.text_file import TextFile
from as_lightning.benchmark.run.config_dir import config_dir
from as_lightning.benchmark.run.hard_samples import HardSamples, hard_samples
from as_lightning.benchmark.run.train import train


@pytest.mark.parametrize("resumed", [False, True])
def test_never_masked_are_the_samples_that_each_visit_found_live(resumed: bool, tmp_path: Path) -> None:
    module, skipping = SleepingClassifier(0.7), MaskedSampleSkipping(2, min_masked=0.0, max_woken=1.0, class_floor=0.0)
    trainer = quiet_trainer(max_epochs=4 if resumed else 8, callbacks=[skipping])
    torch.manual_seed(0)
    trainer.fit(module, numbered_loader())
    live = list(module.live)
    if resumed:
        trainer.save_checkpoint(tmp_path / "saved.ckpt")
        module, skipping = (
            SleepingClassifier(0.7),
            MaskedSampleSkipping(2, min_masked=0.0, max_woken=1.0, class_floor=0.0),
        )
        again = quiet_trainer(max_epochs=8, callbacks=[skipping])
        again.fit(module, numbered_loader(), ckpt_path=tmp_path / "saved.ckpt")
        live += module.live
    expected = [all(epoch[number] for epoch in live if number in epoch) for number in range(SAMPLES)]
    assert skipping.never_masked.tolist() == expected
    assert 0 < sum(expected) < SAMPLES / 2


class SaysTheSum(SleepingClassifier):
    """The class is the digit whose share of the ink is largest: a model without luck."""

    def forward(self, inputs: Tensor) -> Tensor:
        assert not self.training
        return inputs.flatten(1)[:, :10] * 20


def test_the_hardest_sample_is_the_one_whose_label_trails_most() -> None:
    data = Digits()
    data.setup()
    chosen = torch.zeros(1257, dtype=torch.bool)
    chosen[100:200] = True
    module = SaysTheSum()
    hard = hard_samples(quiet_trainer(), module, data, chosen)
    train = data.splits["train"]
    probability = (train.inputs[hard.numbers].flatten(1)[:, :10] * 20).softmax(-1)  # type: ignore[index]
    target = train.targets[hard.numbers][:, None]  # type: ignore[index]
    lead = probability.gather(1, target)[:, 0] - probability.scatter(1, target, 0.0).amax(1)
    torch.testing.assert_close(hard.lead, lead)
    assert sorted(hard.numbers.tolist()) == list(range(100, 200))
    assert hard.lead.tolist() == sorted(hard.lead.tolist())
    assert torch.equal(hard.predicted, probability.argmax(1))
    assert module.training
    assert len(hard_samples(quiet_trainer(), module, data, ~chosen & chosen).numbers) == 0


GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(
    "settings",
    [
        ["trainer.precision=64-true"],
        ["trainer.precision=bf16-true"],
        pytest.param(["trainer.accelerator=gpu"], marks=GPU),
        pytest.param(["trainer.accelerator=gpu", "trainer.precision=16-mixed"], marks=GPU),
    ],
    ids=" ".join,
)
def test_a_run_records_its_hard_samples_in_the_trainers_precision_and_on_its_device(
    settings: list[str], tmp_path: Path
) -> None:
    train(config_of(tmp_path, "as_skip", "trainer.max_epochs=1", *settings))
    hard = HardSamples.read(tmp_path)
    assert hard.samples == 1257
    assert hard.lead.dtype == torch.float32
    assert 0 < len(hard.numbers) == len(hard.lead) < 1257


def test_what_is_written_is_read_again_and_takes_a_few_bytes_a_sample(tmp_path: Path) -> None:
    count = 1000
    hard = HardSamples(5000, torch.randperm(5000)[:count], torch.rand(count), torch.randint(7, (count,)))
    file = hard.write(tmp_path)
    assert file.stat().st_size < 12 * count + 1500
    again = HardSamples.read(tmp_path)
    assert again.samples == 5000
    assert all(torch.equal(left, right) for left, right in zip(hard[1:], again[1:], strict=True))
    assert [path.name for path in tmp_path.iterdir()] == ["hard_samples.npz"]


def config_of(folder: Path, method: str, *overrides: str) -> DictConfig:
    settings = [f"method={method}", "experiment=digits", "logger=none", "trainer.enable_progress_bar=false", *overrides]
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        return compose("train", [*settings, f"output_dir={folder}"])


@pytest.fixture(scope="module")
def noisy_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("noisy") / "run"
    train(config_of(folder, "as_skip", "trainer.max_epochs=5", "optimizer.lr=0.01", "data.label_noise=0.2"))
    return folder


def test_the_command_lists_hardest_first_with_precision_and_recall(
    noisy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(noisy_run), "--limit", "0"])
    first, _, header, *rows, _, last = capsys.readouterr().out.splitlines()
    assert header.split("\t") == ["number", "lead", "label", "predicted", "true label", "sample"]
    listed = [row.split("\t") for row in rows]
    assert first == f"{len(listed):,} of 1,257 training samples were never masked; hardest first:"
    leads = [float(row[1]) for row in listed]
    assert leads == sorted(leads)
    wrong = sum(row[2] != row[4] for row in listed)
    precision, recall = wrong / len(listed), wrong / 251
    assert last == (
        f"wrong labels: 251, of which {wrong} were never masked: precision {precision:.1%}, recall {recall:.1%}"
    )
    assert precision > 0.3  # by chance 0.2
    assert recall > 0.8


def test_the_command_lists_the_hardest_and_says_how_many_more_there_are(
    noisy_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([str(noisy_run), "--limit", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 + 3 + 1 + 2
    assert lines[6].endswith("more: --limit 0 lists all")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    with pytest.raises(SystemExit) as error:
        main([str(argument) for argument in arguments])
    assert error.value.code == 1
    return capsys.readouterr().err


def test_a_run_without_the_record_is_refused_with_the_way_to_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], noisy_run: Path
) -> None:
    assert f"{tmp_path / 'none'} is no folder. Give the folder of a finished run" in refusal(capsys, tmp_path / "none")
    message = refusal(capsys, tmp_path)
    assert "holds no hard_samples.npz. Give the folder of a finished run" in message
    assert "as_skip with method.max_sleep=0" in message
    (tmp_path / "hard_samples.npz").write_bytes(b"no arrays")
    message = refusal(capsys, tmp_path)
    assert "is no file of hard samples: train the run again" in message
    assert "allow_pickle" not in message  # what NumPy says of bytes that are no arrays
    (tmp_path / "hard_samples.npz").write_bytes((noisy_run / "hard_samples.npz").read_bytes())
    assert "result.json does not exist: a run writes it when it has finished" in refusal(capsys, tmp_path)


def test_other_data_than_the_runs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], noisy_run: Path
) -> None:
    (tmp_path / "result.json").write_bytes((noisy_run / "result.json").read_bytes())
    hard = HardSamples.read(noisy_run)
    hard._replace(samples=99).write(tmp_path)
    assert "was trained on 99 samples, but its data now have 1257" in refusal(capsys, tmp_path)


def test_a_run_of_texts_lists_them_from_the_folder_of_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data").mkdir()
    rows = [f"text {index} of {label},{label}\n" for index in range(60) for label in ("cats", "dogs")]
    (tmp_path / "data" / "set.csv").write_text("text,label\n" + "".join(rows))
    overrides = ["experiment=text_file", "data.path=set.csv", f"data_dir={tmp_path / 'data'}", "trainer.max_epochs=1"]
    train(config_of(tmp_path / "run", "as_skip", *overrides[1:], overrides[0]))
    assert str(tmp_path) not in json.dumps(json.loads((tmp_path / "run" / "result.json").read_text())["config"])
    main([str(tmp_path / "run"), "--data-dir", str(tmp_path / "data"), "--limit", "5"])
    header, *listed = (line.split("\t") for line in capsys.readouterr().out.splitlines()[2:8])
    assert header == ["number", "lead", "label", "predicted", "sample"]
    for _, _, label, _, text in listed:
        assert text.endswith(f"of {label}")


def texts(folder: Path) -> BenchmarkDataModule:
    rows = [f"text {index} of {label},{label}\n" for index in range(20) for label in "ab"]
    (folder / "set.csv").write_text("text,label\n" + "".join(rows))
    return TextFile("set.csv", data_dir=folder, **TEXT)


def images(folder: Path) -> BenchmarkDataModule:
    write_images(folder / "pets", {"a": 20, "b": 20})
    return ImageFolder("pets", data_dir=folder, crop_padding=0, horizontal_flip=False, **IMAGES)


def clips(folder: Path) -> BenchmarkDataModule:
    for index in range(20):
        for label in "ab":
            write_clip(folder / "tones" / label / f"{index}.wav", tone(200 + 10 * index))
    return AudioFolder("tones", data_dir=folder, **AUDIO)


@pytest.mark.parametrize("make", [texts, images, clips])
def test_a_training_sample_is_described_by_its_text_or_file(
    make: Callable[[Path], BenchmarkDataModule], tmp_path: Path
) -> None:
    data = make(tmp_path)
    data.prepare_data()
    data.setup("fit")
    train_split = data.splits["train"]
    described = [data.describe(number) for number in range(len(train_split))]
    assert len(set(described)) == len(train_split)
    for number, text in enumerate(described):
        label = data.class_names[int(train_split.targets[number])]
        assert f"of {label}" in text or f"/{label}/" in text


def test_a_sample_with_neither_is_described_by_its_number() -> None:
    assert Digits().describe(7) == "sample 7"
