"""Write what a margin does to a classifier's confidence: ``out_of_scope.csv`` and the table of
README.md.

    python results/calibration/out_of_scope.py ENCODER    # makes the runs that the CSV lacks, then writes
    python results/calibration/out_of_scope.py            # from what is committed

A linear head and a hidden layer are trained on frozen features of CLINC150 (the mean of the
tokens of a MiniLM, see docs/finetuning.md). CLINC150 has queries of no class, which a classifier
should be unsure of. Each margin's learning rate is tuned by the validation accuracy of two seeds;
ten other seeds are judged.
"""

from __future__ import annotations

import json
import os
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy import special
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from as_lightning.functional import as_cross_entropy

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))
from written import written  # noqa: E402

RUNS, PAGE = FOLDER / "out_of_scope.csv", FOLDER / "README.md"
SCRIPT = "results/calibration/out_of_scope.py"
HEADS = {"linear head": 0, "one hidden layer": 512}
MARGINS = (1.0, 0.1, 0.3, 0.5, 0.7)
RATES = (0.0005, 0.001, 0.002, 0.005, 0.01)
TUNING, JUDGED = (1000, 1001), tuple(range(10))
EPOCHS, BATCH = 15, 128
MEASURES = {
    "accuracy": "accuracy",
    "auroc_probability": "AUROC, probability",
    "auroc_energy": "AUROC, energy",
    "risk_coverage": "AURC x 1000",
}


def features(encoder: Path) -> dict[str, tuple[Tensor, list[str]]]:
    """Return the features and labels of each split of CLINC150."""
    from transformers import AutoModel, AutoTokenizer

    data = Path(os.environ["AS_LIGHTNING_DATA"]) / "clinc150.json"
    rows = json.loads(data.read_text(encoding="utf-8"))
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model = AutoModel.from_pretrained(encoder).eval()

    @torch.no_grad()
    def encoded(texts: list[str]) -> Tensor:
        tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        mask = tokens["attention_mask"].unsqueeze(-1)
        return (model(**tokens).last_hidden_state * mask).sum(1) / mask.sum(1)

    splits = {}
    for name in ("train", "val", "test", "oos_test"):
        texts, labels = zip(*rows[name], strict=True)
        parts = [encoded(list(texts[start : start + 64])) for start in range(0, len(texts), 64)]
        splits[name] = torch.cat(parts), list(labels)
    return splits


def network(hidden: int, width: int, classes: int) -> nn.Module:
    """Return a linear head, or one with a hidden layer."""
    if not hidden:
        return nn.Linear(width, classes)
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes))


def risk_coverage(confidence: Tensor, right: Tensor) -> float:
    """Return the area under the curve of risk by coverage: the mean error of the most confident."""
    order = confidence.argsort(descending=True)
    wrong = (~right[order]).double().cumsum(0)
    return float((wrong / torch.arange(1, len(wrong) + 1)).mean())


def measures(net: nn.Module, inputs: Tensor, target: Tensor, foreign: Tensor) -> dict[str, float]:
    """Return what is measured on test queries of the classes and on those of none."""
    with torch.no_grad():
        logits, foreign_logits = net(inputs), net(foreign)
    right = logits.argmax(-1) == target
    confidence = logits.softmax(-1).amax(-1)
    own = np.r_[np.ones(len(inputs)), np.zeros(len(foreign))]
    probability = torch.cat([confidence, foreign_logits.softmax(-1).amax(-1)])
    energy = torch.cat([logits.logsumexp(-1), foreign_logits.logsumexp(-1)])
    return {
        "accuracy": 100 * float(right.double().mean()),
        "auroc_probability": 100 * roc_auc_score(own, probability),
        "auroc_energy": 100 * roc_auc_score(own, energy),
        "risk_coverage": 1000 * risk_coverage(confidence, right),
    }


def trained(
    inputs: Tensor, target: Tensor, hidden: int, classes: int, margin: float, rate: float, seed: int
) -> nn.Module:
    """Train a head with AS-Softmax of a margin; a margin of 1 is softmax."""
    torch.manual_seed(seed)
    net = network(hidden, inputs.shape[1], classes)
    steps = EPOCHS * -(-len(inputs) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            loss = as_cross_entropy(net(inputs[rows]), target[rows], delta=margin)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def best_rate(runs: pd.DataFrame, head: str, margin: float) -> float:
    """Return the rate of the best mean validation accuracy over the tuning seeds."""
    rows = runs[(runs["head"] == head) & (runs["margin"] == margin) & runs["seed"].isin(TUNING)]
    return float(rows.groupby("rate")["validation"].mean().idxmax())


def make_runs(encoder: Path) -> None:
    """Make the runs that the committed table lacks, and save it after each."""
    splits = features(encoder)
    classes = sorted(set(splits["train"][1]))
    codes = {
        name: torch.tensor([classes.index(x) for x in splits[name][1]])
        for name in ("train", "val", "test")
    }
    runs = pd.read_csv(RUNS) if RUNS.exists() else pd.DataFrame()
    for phase, (head, hidden), margin in product(("tuning", "judged"), HEADS.items(), MARGINS):
        rates = RATES if phase == "tuning" else [best_rate(runs, head, margin)]
        for rate, seed in product(rates, TUNING if phase == "tuning" else JUDGED):
            keys = {"head": head, "margin": margin, "rate": rate, "seed": seed}
            if len(runs) and (runs[[*keys]] == pd.Series(keys)).all(axis=1).any():
                continue
            net = trained(
                splits["train"][0], codes["train"], hidden, len(classes), margin, rate, seed
            )
            with torch.no_grad():
                right = net(splits["val"][0]).argmax(-1) == codes["val"]
            row = keys | {"validation": 100 * float(right.double().mean())}
            if phase == "judged":
                row |= measures(net, splits["test"][0], codes["test"], splits["oos_test"][0])
            runs = pd.concat([runs, pd.DataFrame([row])], ignore_index=True)
            runs.round(4).to_csv(RUNS, index=False)


def difference(values: pd.Series) -> str:
    """Return the mean of paired differences with its 95% interval (Student's t)."""
    half = special.stdtrit(len(values) - 1, 0.975) * values.sem()
    return f"{values.mean():+.1f} ± {half:.1f}"


def page() -> str:
    """Return the table that the committed runs make."""
    runs = pd.read_csv(RUNS)
    judged = runs[runs["seed"].isin(JUDGED)].set_index(["head", "margin", "seed"]).sort_index()
    lines = [f"| head | margin | rate | {' | '.join(MEASURES.values())} |", "| --- " * 7 + "|"]
    for head, margin in product(HEADS, MARGINS):
        rows, softmax = judged.loc[(head, margin)], judged.loc[(head, 1.0)]
        if margin == 1.0:
            cells = [f"{rows[name].mean():.1f}" for name in MEASURES]
        else:
            cells = [difference(rows[name] - softmax[name]) for name in MEASURES]
        name = "softmax" if margin == 1.0 else f"{margin:g}"
        lines.append(f"| {head} | {name} | {rows['rate'].iloc[0]:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        make_runs(Path(path))
    PAGE.write_text(written(PAGE, SCRIPT, page()), encoding="utf-8")
