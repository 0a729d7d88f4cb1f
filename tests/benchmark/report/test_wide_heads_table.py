"""The table of dense and fused heads: what stands beside what, and where it is written."""

from __future__ import annotations

import pytest

from as_lightning.benchmark.published import wide_heads


@pytest.fixture
def runs(result):
    """Three seeds of softmax, of the same with a fused head, and of AS-Softmax, at two batch sizes."""

    def run(method: str, seed: int, batch_tokens: int, minutes: float, megabytes: int, **settings):
        return result(
            method,
            seed,
            0.25 + 0.01 * seed,
            name="python_code",
            seconds=60 * minutes,
            metrics={"accuracy": 0.25 + 0.01 * seed, "perplexity": 90.0},
            peak_memory=megabytes * 10**6,
            config={
                "data": {"batch_tokens": batch_tokens, "max_tokens": {"train": 5000, "test": None}},
                "trainer": {"max_epochs": 2},
                "method": {"name": method, **settings},
            },
        )

    return [
        found
        for seed in range(3)
        for batch_tokens in (4096, 1024)
        for found in (
            run("as_softmax", seed, batch_tokens, 3.0, 200, delta=0.5, fused_head=True),
            run("as_softmax", seed, batch_tokens, 4.0, 200, delta=0.1, fused_head=True),
            run("softmax", seed, batch_tokens, 8.0, batch_tokens),
            run("fused_softmax", seed, batch_tokens, 6.0, batch_tokens // 4),
        )
    ]


def test_a_batch_size_has_dense_softmax_first_and_ratios_to_it(runs):
    header, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in wide_heads.wide_head_table(runs)
    ]
    cells = [dict(zip(header[:6], row[:6], strict=True)) for row in rows]  # "/ dense" twice: time here, memory below
    assert [row[0] for row in rows] == ["1,024"] * 4 + ["4,096"] * 4
    for four in (cells[:4], cells[4:]):
        assert [row["method"] for row in four] == [
            "softmax",
            "fused_softmax",
            "as_softmax (delta=0.1)",
            "as_softmax (delta=0.5)",
        ]
        assert [row["head"] for row in four] == ["dense", "fused", "fused", "fused"]
        assert [row["minutes"] for row in four] == ["8.0", "6.0", "4.0", "3.0"]
        assert [row["/ dense"] for row in four] == ["1.00", "0.75", "0.50", "0.38"]
    assert [row[7] for row in rows[4:6]] == ["1.00", "0.25"]
    assert [row[11] for row in rows[:4]] == ["90.0", "90.0", "–", "–"]


def test_the_page_and_the_quoted_table_come_from_the_files_and_leave_the_text_around_it(runs, tmp_path):
    document = tmp_path / "wide.md"
    document.write_text(f"Before.\n\n{wide_heads.START}\nold\n{wide_heads.END}\n\nAfter.\n")
    wide_heads.write(tmp_path, document)
    assert "Not measured yet" in document.read_text()
    for number, run in enumerate(runs[:8]):
        (tmp_path / "heads" / str(number)).mkdir(parents=True)
        run.write(tmp_path / "heads" / str(number))
    for _ in range(2):  # the second time changes nothing
        wide_heads.write(tmp_path, document)
        text = document.read_text()
        assert text.startswith("Before.\n\n")
        assert text.endswith("\n\nAfter.\n")
        assert text.count("| fused_softmax |") == 2
        assert "old" not in text
        assert "Not measured" not in text
    assert "tokens used: train 5,000, test all; 2 epochs" in (tmp_path / "README.md").read_text()


def test_a_document_without_the_markers_is_refused(tmp_path):
    (tmp_path / "wide.md").write_text("Nothing to fill in.")
    with pytest.raises(ValueError, match=r"wide.md has no place for what the script writes: put <!-- written by"):
        wide_heads.write(tmp_path, tmp_path / "wide.md")
