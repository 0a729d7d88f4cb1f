"""What the README says of AS-Softmax in words of its own is what the committed tables say."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[3]
README = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def verdicts(pattern: str) -> list[tuple[str, str, str]]:
    """Table, method and verdict of each row of a method on AS-Softmax, one label or several."""
    rows = []
    for path in sorted((ROOT / "results").glob(pattern)):
        table = pd.read_csv(path)
        ours = table[table["method"].str.match("(multilabel_)?as_")]
        place = path.relative_to(ROOT / "results").parts[0]
        rows += [(place, method, verdict) for method, verdict in zip(ours["method"], ours["verdict"], strict=True)]
    assert rows
    return rows


def test_the_readme_says_that_no_verdict_on_as_softmax_is_better_and_none_of_the_results_is() -> None:
    assert "no verdict on AS-Softmax is *better*" in README
    assert [row for row in verdicts("**/report/report.csv") if row[2] == "better"] == []


def test_the_readme_names_the_data_sets_on_which_untuned_as_softmax_is_worse() -> None:
    sweeps = verdicts("*/report/report.csv")
    worse = {place for place, method, verdict in sweeps if method.endswith("as_softmax") and verdict == "worse"}
    assert worse == {"cifar10_jpeg", "goemotions"}
    assert "untuned, at 0.1, AS-Softmax is *worse* than softmax on a part of CIFAR-10 and on GoEmotions" in README
