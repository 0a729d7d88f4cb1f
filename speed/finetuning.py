"""What a training step costs when the last layers of a pretrained encoder are trained, beside
training all of it.

    python speed/finetuning.py --output results/performance/finetuning --page docs/finetuning.md

The encoder has random weights, of the size of MiniLM (6 layers of 384) by default: the time does
not depend on them.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from interleaved import command, environment, interleaved_times, machine_line, write_report
from torch import nn
from transformers import BertConfig, BertModel

from as_lightning.bench.encoders.auto_model import AutoModelEncoder

VOCAB, CLASSES = 30522, 150
WHOLE = "the whole encoder"
START, END = "<!-- from results/performance/finetuning.md -->", "<!-- end -->"


def step(
    encoder: AutoModelEncoder, head: nn.Module, optimizer: Any, inputs: Any, target: torch.Tensor
) -> None:
    """Forward, backward and the optimizer's step on one batch."""
    optimizer.zero_grad()
    F.cross_entropy(head(encoder(inputs)), target).backward()
    optimizer.step()


def sides(folder: Path, rows: int, tokens: int, layers: int) -> dict[str, Callable[[], None]]:
    """A training step for each way to use the encoder, on the same batch."""
    torch.manual_seed(0)
    ids = torch.randint(1, VOCAB, (rows, tokens))
    target = torch.randint(CLASSES, (rows,))
    found: dict[str, Callable[[], None]] = {}
    for name, trainable, kept in (
        (WHOLE, None, False),
        (f"the last {layers} layers", layers, False),
        ("a head on fixed features, kept", 0, True),
    ):
        encoder = AutoModelEncoder(
            str(folder), VOCAB, tokens, 0, "mean", trainable_layers=trainable
        )
        inputs = encoder(ids) if kept else ids
        encoder.inputs_are_features = kept
        head = nn.Linear(encoder.out_features, CLASSES)
        optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=1e-4)
        found[name] = partial(step, encoder, head, optimizer, inputs, target)
    return found


def table(report: Mapping[str, Any]) -> str:
    """The Markdown table of a report."""
    batch = f"{report['rows']} texts of {report['tokens']} tokens"
    lines = [
        f"# A training step on {batch}, {report['layers']} layers of {report['width']}",
        "",
        machine_line(report),
        "Times of one step are divided by those of training the whole encoder, round by round: "
        "median, and the range.",
        "",
        "| trained | time | milliseconds |",
        "| --- | ---: | ---: |",
    ]
    for name, found in report["times"].items():
        spread = f"{found['ratio_min']:.3f}–{found['ratio_max']:.3f}"
        lines.append(
            f"| {name} | **{found['ratio']:.3f}** ({spread}) | {found['milliseconds']:.1f} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--trainable", type=int, default=2)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument(
        "--tokens", type=int, default=11, help="of a text; CLINC150's have 11 on average"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--page", type=Path, help="the page whose table is written anew")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    config = BertConfig(
        vocab_size=VOCAB,
        hidden_size=arguments.width,
        num_hidden_layers=arguments.layers,
        num_attention_heads=max(arguments.width // 32, 1),
        intermediate_size=4 * arguments.width,
    )
    with tempfile.TemporaryDirectory() as folder:
        BertModel(config).save_pretrained(folder)
        measured = sides(Path(folder), arguments.rows, arguments.tokens, arguments.trainable)
    times = interleaved_times(measured, WHOLE, torch.device("cpu"), rounds=arguments.rounds)
    report = {
        "command": command(),
        "environment": environment(torch.device("cpu")),
        **{name: getattr(arguments, name) for name in ("layers", "width", "rows", "tokens")},
        "times": times,
    }
    write_report(report, table(report), arguments.output)
    if arguments.page is not None:
        before, rest = arguments.page.read_text(encoding="utf-8").split(START)
        inner = table(report).split("\n", 2)[2]
        arguments.page.write_text(
            f"{before}{START}\n{inner}{END}{rest.split(END, 1)[1]}", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
