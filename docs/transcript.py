"""Write docs/transcript.md: the commands of the README in a new environment, with what they print.

python docs/transcript.py           # in a temporary folder: takes minutes, 5 GB and the network
python docs/transcript.py FOLDER    # in this folder, which stays; an environment that is there is used
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "transcript.md"
PROJECT = "as-lightning"
MARK = "@@@"

MODEL = """\
import lightning.pytorch as L
import torch
from torch.utils.data import DataLoader, TensorDataset, random_split


class LitModel(L.LightningModule):
    def __init__(self, lr=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))
        self.criterion = torch.nn.CrossEntropyLoss()

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        return self.criterion(self.net(inputs), targets)

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        self.log("val_acc", (self.net(inputs).argmax(-1) == targets).float().mean())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def loaders():
    inputs = torch.randn(2000, 20, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(inputs, inputs[:, :5].argmax(1))
    train, validation = random_split(data, [0.8, 0.2], torch.Generator().manual_seed(0))
    return DataLoader(train, batch_size=64, shuffle=True), DataLoader(validation, batch_size=400)
"""

TRAIN = """\
import lightning.pytorch as L

from model import LitModel, loaders

L.seed_everything(0, verbose=False)
train, validation = loaders()
model = LitModel(lr=1e-2)
trainer = L.Trainer(max_epochs=10, logger=False, enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(model, train, validation)
print(f"validation accuracy {trainer.callback_metrics['val_acc']:.3f}")
"""

ADOPTED = (
    TRAIN.replace(
        "import LitModel, loaders\n",
        "import LitModel, loaders\nfrom as_lightning import ASSoftmaxMixin, MaskingMonitor\n",
    )
    .replace(
        "L.seed_everything",
        '\nclass WithAS(ASSoftmaxMixin, LitModel):\n    as_softmax_replaces = "criterion"\n\n\nL.seed_everything',
    )
    .replace("LitModel(lr=1e-2)", "WithAS(lr=1e-2, delta=0.1)")
    .replace(
        "enable_progress_bar=False)", "enable_progress_bar=False,\n                    callbacks=[MaskingMonitor()])"
    )
    + "print(f\"{trainer.callback_metrics['masking/sample_ratio_epoch']:.0%} of the samples masked in the last epoch\")\n"
    + 'trainer.save_checkpoint("adopted.ckpt")\n'
)

LOOK = """\
import torch

from as_lightning.functional import as_cross_entropy
from model import loaders
from train_as import WithAS

model = WithAS.load_from_checkpoint("adopted.ckpt")
inputs, targets = next(iter(loaders()[1]))
logits = model.net(inputs).detach().requires_grad_()
losses, counts = as_cross_entropy(logits, targets, delta=0.1, reduction="none", return_counts=True)
losses.sum().backward()
print(f"{int(counts.masked_samples)} of {int(counts.samples)} validation samples are masked")
print(f"{int((losses == 0).sum())} have zero loss, {int((logits.grad == 0).all(1).sum())} have zero gradient")
"""


def readme_example() -> str:
    """The first Python block of the README."""
    found = re.search(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert found
    return found.group(1)


FILES = {"model.py": MODEL, "train.py": TRAIN, "train_as.py": ADOPTED, "look.py": LOOK}

STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "## Install\n\nThe folder `as-lightning` is a checkout. The environment is new. `pip install ./as-lightning` would do "
        "the same in one step; building the wheel first shows that the installation needs no checkout.",
        (
            "python3 -m venv .venv",
            ". .venv/bin/activate",
            "pip wheel --quiet --no-deps --wheel-dir dist ./as-lightning",
            "ls dist",
            "pip install --quiet dist/*.whl",
            "pip show as-lightning | grep -E '^(Name|Version|License|Requires)'",
            "as-lightning --version",
        ),
    ),
    (
        "## The README's example\n\n`example.py` is the first Python block of the README.",
        ("python example.py",),
    ),
    (
        "## A module of one's own\n\n`model.py` is a module with `self.criterion`, with its data. `train.py` trains it. Neither "
        "knows of as-lightning.",
        ("cat model.py", "cat train.py", "python train.py"),
    ),
    (
        "## Adopt AS-Softmax\n\n`model.py` stays as it is. `train_as.py` is `train.py` with the mixin and the monitor.",
        ("diff train.py train_as.py", "python train_as.py"),
    ),
    (
        "## The loss is masked\n\nA masked sample has zero loss and zero gradient.",
        ("cat look.py", "python look.py"),
    ),
    (
        "## The app needs more packages\n\nThe commands for experiments and comparisons say what to install.",
        ("as-lightning experiment=digits",),
    ),
)


def outputs(commands: list[str], folder: Path) -> list[str]:
    """What each command prints, all run in one shell in ``folder``.

    Raises:
        RuntimeError: if the shell ends before the last command.
    """
    script = "\n".join(f"printf '\\n{MARK}\\n'\n{command} 2>&1" for command in commands)
    unset = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONWARNINGS", "AS_LIGHTNING_DATA")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    shell = ["bash", "--noprofile", "--norc"]
    run = subprocess.run(
        shell, input=script, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, check=False
    )
    parts = run.stdout.split(f"\n{MARK}\n")[1:]
    if len(parts) != len(commands):
        raise RuntimeError(f"the shell ended after {len(parts)} of {len(commands)} commands: {run.stdout[-2000:]}")
    return [as_seen(part, folder) for part in parts]


def as_seen(printed: str, folder: Path) -> str:
    """What a reader of the terminal sees in the end: lines that were written over are left out, so is the folder."""
    lines = [line.rstrip("\r").rpartition("\r")[2].rstrip() for line in printed.split("\n")]
    text = "\n".join(lines).strip("\n")
    return re.sub(r"\n{3,}", "\n\n", text).replace(f"{folder}/", "")


def page(folder: Path) -> str:
    """Run all steps in ``folder``, and the text of the page."""
    if not (folder / PROJECT).exists():
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder / PROJECT)], check=True)
    for name, text in {"example.py": readme_example(), **FILES}.items():
        (folder / name).write_text(text, encoding="utf-8")
    printed = iter(outputs([command for _, commands in STEPS for command in commands], folder))
    lines = [
        "# From a new environment to your module",
        "",
        "Written by `python docs/transcript.py`, which runs these commands in a new environment and notes what they print.",
    ]
    for text, commands in STEPS:
        lines += ["", text, "", "```console"]
        for command in commands:
            lines += [f"$ {command}", *filter(None, [next(printed)])]
        lines.append("```")
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> None:
    if arguments:
        folder = Path(arguments[0]).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        text = page(folder)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            text = page(Path(temporary).resolve())
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
