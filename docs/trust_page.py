"""Write docs/trust.md: what the project promises, the tests of each promise, and the figures of their last run.

make trust                                # runs those tests, then this script
python docs/trust_page.py                 # writes the page from the figures in docs/trust.json
python docs/trust_page.py RUN.xml         # takes the figures from a run's JUnit file first
python docs/trust_page.py --tests         # prints the tests
"""

from __future__ import annotations

import ast
import json
import platform
import sys
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PAGE, FIGURES = ROOT / "docs" / "trust.md", ROOT / "docs" / "trust.json"


@dataclass(frozen=True)
class Promise:
    """What holds, and the tests that would fail if it did not, each as ``file::function`` below ``tests``."""

    text: str
    tests: tuple[str, ...]


PROMISES = (
    Promise(
        "Every loss agrees with its formula, computed in float64. Tested for up to five dimensions, all dtypes and "
        "integer targets, all reductions, class weights, ignored targets and labels, ties, logits up to 1e4 "
        "(`perturb_max_loss`: up to 30), logits of -inf where the formula has a value, and non-contiguous, expanded "
        "and zero-size tensors. AS-Softmax and its fused head are tested with up to 100,000 classes, the losses of the "
        "family with up to 1,000 (`perturb_max_loss`: 8).",
        (
            "functional/test_differential.py::test_every_loss_agrees_with_the_float64_oracle_on_20000_random_calls",
            "functional/test_cross_entropy.py::test_any_shape_dtype_and_margin_follows_the_formula",
            "functional/variants/test_losses.py::test_loss_equals_reference",
            "functional/test_large_scores.py::"
            "test_gradients_of_scores_near_1e4_are_exact_to_a_few_units_in_the_last_place",
        ),
    ),
    Promise(
        "With a margin of 1, loss and training are those of `F.cross_entropy`.",
        (
            "functional/test_cross_entropy.py::test_delta_one_equals_cross_entropy",
            "test_mixin.py::test_training_with_delta_one_is_training_with_cross_entropy",
        ),
    ),
    Promise(
        "In half precision, no gradient is lost before a loss scaler can act, and none overflows.",
        (
            "functional/test_derivatives.py::test_the_fused_head_in_float16_loses_no_gradient",
            "functional/test_derivatives.py::test_float16_sums_over_many_rows_of_one_class_do_not_overflow",
            "functional/test_derivatives.py::test_an_upstream_gradient_above_the_largest_float16_stays_finite",
            "functional/test_derivatives.py::test_small_float16_probabilities_are_kept_for_the_loss_scaler",
        ),
    ),
    Promise(
        "With narrow integer targets, exactly the targets equal to `ignore_index` are ignored.",
        (
            "functional/test_derivatives.py::test_an_ignore_index_beyond_a_narrow_type_ignores_no_class",
            "functional/test_derivatives.py::test_the_family_ignores_no_class_for_an_ignore_index_beyond_a_narrow_type",
            "functional/test_derivatives.py::test_an_ignore_index_beyond_a_narrow_type_ignores_no_label",
        ),
    ),
    Promise(
        "Second derivatives, batched gradients, forward mode and `torch.func` give the right derivative, or an error "
        "if a loss does not have that derivative. They never give a wrong one.",
        (
            "functional/test_second_derivatives.py::test_a_second_derivative_is_right_or_refused",
            "functional/test_second_derivatives.py::test_all_public_losses_are_looked_at",
            "functional/test_derivatives.py::test_the_fused_head_refuses_create_graph",
            "functional/test_derivatives.py::test_the_fused_head_takes_batched_upstream_gradients",
            "functional/test_derivatives.py::test_the_fused_head_of_single_losses_refuses_batched_upstream_gradients",
            "functional/test_derivatives.py::test_jacobians_are_the_same_vectorised_or_not",
            "functional/test_derivatives.py::test_forward_mode_gives_the_directional_derivative",
            "functional/test_derivatives.py::test_per_sample_gradients_of_the_fused_head_by_torch_func",
            "functional/test_derivatives.py::test_second_derivatives_of_many_logits_under_the_compiler_are_right",
            "functional/test_derivatives.py::test_a_backend_without_second_derivatives_refuses_them_as_for_cross_entropy",
        ),
    ),
    Promise(
        "Adaptive accumulation gives the weights of a hand-written loop, bit for bit.",
        ("callbacks/test_adaptive_gradient_accumulation_exactness.py::test_any_training_equals_the_hand_written_loop",),
    ),
    Promise(
        "A feature of Lightning works, or is refused with a message that says what to do instead: each row of "
        "[Compatibility](compatibility.md).",
        (
            "compatibility/test_matrix.py::test_a_feature_on_one_process_is_supported_or_refused_as_the_page_says",
            "compatibility/test_matrix.py::test_a_feature_on_two_processes_is_supported_as_the_page_says",
            "compatibility/test_matrix.py::test_a_feature_on_two_processes_is_that_on_one",
        ),
    ),
    Promise(
        "The monitor counts every training sample once: also after an earlier fit, a search for the learning rate, an "
        "exception, or a resume from any batch, and with two optimizers.",
        (
            "callbacks/test_masking_monitor.py::test_an_earlier_fit_is_not_counted",
            "callbacks/test_masking_monitor.py::test_a_learning_rate_search_is_not_counted",
            "callbacks/test_masking_monitor.py::test_a_training_that_failed_is_not_counted",
            "callbacks/test_masking_monitor.py::test_a_run_resumed_after_any_batch_counts_what_the_whole_run_counts",
            "callbacks/test_masking_monitor.py::test_a_checkpoint_of_an_epochs_last_step_loses_no_epoch_and_doubles_none",
            "callbacks/test_masking_monitor.py::"
            "test_with_manual_optimizers_the_monitor_logs_at_the_steps_of_the_modules_own_metrics",
            "test_mixin.py::test_a_first_batch_that_returns_none_is_no_silence",
        ),
    ),
    Promise(
        "A run that is killed at any moment and started again ends with the results of an undisturbed run.",
        (
            "benchmark/run/test_killed_runs.py::test_a_killed_run_ends_with_the_results_of_an_undisturbed_one",
            "benchmark/run/test_killed_runs.py::test_twenty_kills_at_random_moments_change_nothing",
        ),
    ),
    Promise(
        "Files that a full disk has cut short are named and renamed. Two identical sweeps at once make each run once.",
        (
            "benchmark/run/test_killed_runs.py::"
            "test_unreadable_checkpoints_are_named_and_set_aside_and_the_one_before_is_taken_or_none",
            "benchmark/run/test_killed_runs.py::test_a_truncated_result_is_set_aside_and_the_run_made_again",
            "benchmark/run/test_killed_runs.py::test_a_full_disk_leaves_the_checkpoint_before_as_it_was",
            "benchmark/run/test_killed_runs.py::"
            "test_a_folder_is_locked_while_a_run_is_in_it_and_free_once_the_process_is_killed",
            "benchmark/commands/test_sweep.py::"
            "test_two_equal_sweeps_at_once_make_each_run_once_with_the_results_of_one_sweep_and_both_report_all",
            "benchmark/report/test_report_callback.py::"
            "test_a_sweep_that_begins_in_the_folder_of_another_leaves_its_notes_alone",
        ),
    ),
    Promise(
        "The commands say in one sentence what is wrong: an output that cannot be written, a missing package, a "
        "misspelt setting.",
        (
            "benchmark/report/test_report.py::test_an_output_that_cannot_be_written_ends_with_a_message",
            "benchmark/report/test_report.py::test_a_file_that_is_no_result_ends_with_its_path_and_no_traceback",
            "benchmark/report/test_report.py::test_a_hostile_name_writes_no_file_elsewhere_and_no_html",
            "benchmark/commands/test_console.py::test_a_command_without_its_packages_names_the_extra",
            "benchmark/run/test_settings.py::test_what_hydra_does_not_know_is_told_with_the_nearest_name",
        ),
    ),
)


def named_tests() -> list[str]:
    """The tests of all promises, as pytest takes them.

    Raises:
        LookupError: if one of them does not exist.
    """
    tests = [f"tests/{test}" for promise in PROMISES for test in promise.tests]
    for test in tests:
        file, name = test.split("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        if name not in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}:
            raise LookupError(f"docs/trust_page.py names {test}, which does not exist")
    return tests


def figures_of(run: Path) -> dict[str, Any]:
    """How many cases of each test have passed, and what they have counted, from a run's JUnit file.

    Raises:
        ValueError: if a test has failed or was not run.
    """
    passed, skipped, counted = Counter[str](), Counter[str](), Counter[str]()
    for case in ElementTree.parse(run).iter("testcase"):
        test = f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name'].partition('[')[0]}"
        if case.find("failure") is not None or case.find("error") is not None:
            raise ValueError(f"{test} has failed: the page has no figures of a failed run")
        (passed if case.find("skipped") is None else skipped)[test] += 1
        for counter in case.iter("property"):
            counted[counter.attrib["name"]] += int(counter.attrib["value"])
    missing = set(named_tests()) - passed.keys()
    if missing:
        raise ValueError(f"the run has no passed case of {', '.join(sorted(missing))}")
    return {
        "command": "make trust",
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("torch", "lightning", "torchmetrics")},
        "counted": dict(sorted(counted.items())),
        "passed": {test: passed[test] for test in named_tests()},
    }


def page(figures: dict[str, Any]) -> str:
    """The text of ``docs/trust.md``."""
    named_tests()
    cases = sum(figures["passed"].values())
    versions = ", ".join(f"{name} {number}" for name, number in figures["versions"].items())
    lines = [
        "# Trust",
        "",
        "This page lists what the project promises, and the tests of each promise. `make trust` runs these tests and",
        f"writes the page. The figures are from its last run ({versions}).",
        "In CI, `make test` and `make test-slow` run the same tests.",
        "",
        *(f"* **{count:,}** {name}." for name, count in figures["counted"].items()),
        f"* **{cases:,}** cases of the {len(figures['passed'])} tests below passed. None failed.",
    ]
    for promise in PROMISES:
        lines += ["", f"**{promise.text}**", "", "| test | cases |", "| --- | --- |"]
        for test in promise.tests:
            file, name = test.split("::")
            lines.append(f"| `{name}` in `tests/{file}` | {figures['passed'][f'tests/{test}']:,} |")
    lines += [
        "",
        "`make test-oldest` runs the tests of the core with the oldest supported versions, and `make test-newest` runs",
        "them with a newer torch.",
    ]
    return "\n".join([*lines, ""])


def main(arguments: list[str]) -> None:
    if arguments == ["--tests"]:
        print(*named_tests())
        return
    if arguments:
        FIGURES.write_text(json.dumps(figures_of(Path(arguments[0])), indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(page(json.loads(FIGURES.read_text(encoding="utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
