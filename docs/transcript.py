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
LEFT_OUT = ("💡", "WARNING: Location")  # an advertisement, and what pip says of this machine's settings
BAR = re.compile(r"(Epoch \d+|Training):")

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

ADOPTED = """\
from as_lightning import ASSoftmaxMixin
from model import LitModel


class WithAS(ASSoftmaxMixin, LitModel):
    as_softmax_replaces = "criterion"
"""

TRAIN_ADOPTED = (
    TRAIN.replace(
        "import LitModel, loaders\n",
        "import loaders\nfrom adopted import WithAS\nfrom as_lightning import MaskingMonitor\n",
    )
    .replace("LitModel(lr=1e-2)", "WithAS(lr=1e-2, delta=0.1)")
    .replace("train, validation)\n", 'train, validation)\ntrainer.save_checkpoint("adopted.ckpt")\n')
    .replace(
        "enable_progress_bar=False)", "enable_progress_bar=False,\n                    callbacks=[MaskingMonitor()])"
    )
    + "masked = trainer.callback_metrics['masking/sample_ratio_epoch']\n"
    + 'print(f"{masked:.0%} of the samples masked in the last epoch")\n'
)

LOOK = """\
from adopted import WithAS
from as_lightning.functional import as_cross_entropy
from model import loaders

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


FILES = {"model.py": MODEL, "train.py": TRAIN, "adopted.py": ADOPTED, "train_as.py": TRAIN_ADOPTED, "look.py": LOOK}

INSTALL = """## Install

The folder `as-lightning` is a checkout of the repository. The environment is new. `pip install ./as-lightning` does the
same in one step; here the wheel comes first, to show that the installed library does not need the checkout."""

EXAMPLE = """## The example of the README

`example.py` is the first Python block of the README. Lightning prints a table of the module and a progress bar, of
which the last line is shown."""

BEFORE = """## A module before

`model.py` has a module with `self.criterion`, and data. `train.py` trains it. Neither of them knows as-lightning. The
last line of the output is shown."""

AFTER = """## The same module with AS-Softmax

`model.py` does not change. `adopted.py` mixes the loss in. `train_as.py` differs from `train.py` in the class, the
margin `delta` and the callback that counts the masked samples. Do not expect a better score: short trainings from
scratch can lose ([choosing the margin](choosing_the_margin.md)). [A comparison](compare.md) tells you."""

MASKED = """## What is masked

A masked sample has zero loss and zero gradient. `look.py` loads the checkpoint of that training and counts both."""

APP = """## The app

The commands for experiments and comparisons need more packages. Without them they say what to install."""

STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        INSTALL,
        (
            "python3 -m venv .venv",
            ". .venv/bin/activate",
            "pip wheel --quiet --no-deps --wheel-dir dist ./as-lightning",
            "ls dist",
            "pip install --quiet dist/*.whl",
            "pip show as-lightning | grep -E '^(Name|Version|Requires)'",
            "as-lightning --version",
        ),
    ),
    (EXAMPLE, ("python example.py",)),
    (BEFORE, ("cat model.py", "cat train.py", "python train.py 2>&1 | tail -n 1")),
    (AFTER, ("cat adopted.py", "diff train.py train_as.py", "python train_as.py 2>&1 | tail -n 2")),
    (MASKED, ("cat look.py", "python look.py")),
    (APP, ("as-lightning experiment=digits",)),
)


def outputs(commands: list[str], folder: Path) -> list[str]:
    """What each command prints, all run in one shell in ``folder``.

    Raises:
        RuntimeError: if the shell ends before the last command.
    """
    script = "\n".join(f"printf '\\n{MARK}\\n'\n{{ {command}; }} 2>&1" for command in commands)
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
    """The output as the page shows it: the last line of a progress bar, and nothing that belongs to this machine."""
    lines = [line.rpartition("\r")[2].rstrip() for line in printed.strip("\n").split("\n")]
    shown = [
        line
        for number, line in enumerate(lines)
        if not line.startswith(LEFT_OUT) and not (BAR.match(line) and any(map(BAR.match, lines[number + 1 :])))
    ]
    if any(map(BAR.match, shown)):
        shown = list(filter(None, shown))
    return "\n".join(shown).replace(f"{folder}/", "")


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
        "`python docs/transcript.py` runs these commands in a new environment and writes this page with their output.",
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
