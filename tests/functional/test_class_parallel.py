"""Heads and logits whose classes are spread over processes equal those of one process."""

import functools
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import class_parallel_ranks as program
from harness.class_parallel_ranks import LINEAR_CASES, LOGITS_CASES, Case, operands
from harness.prepared_processes import run
from harness.torch_limits import TENSOR_PARALLEL_OUTSIDE, skipped_by
from oracles.as_softmax import as_softmax_reference
from torch import Tensor

from as_lightning.functional import as_cross_entropy, as_linear_cross_entropy

EXACT = {"rtol": 1e-12, "atol": 1e-12}
TOLERANCE = {torch.float64: EXACT, torch.float32: {"rtol": 1e-4, "atol": 1e-5}}


Seen = Callable[[str], list[dict[str, Any]]]  # what each process has seen in a scenario


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the processes have left what they have seen."""
    folder = tmp_path_factory.mktemp("class_parallel")
    done = run(partial(program.main, folder), folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@functools.cache
def seen_by(folder: Path, count: int, scenario: str) -> list[dict[str, Any]]:
    files = [folder / str(count) / f"{scenario}-{rank}.pt" for rank in range(count)]
    results = [torch.load(file, weights_only=False) for file in files]
    for result in results:
        assert "error" not in result, result["error"]
    return results


@pytest.fixture
def two(folder: Path) -> Seen:
    return partial(seen_by, folder, 2)


@pytest.fixture(params=[2, 3], ids=["two", "three"])
def seen(request: pytest.FixtureRequest, folder: Path) -> Seen:
    return partial(seen_by, folder, request.param)


def leaves(case: Case, dtype: torch.dtype) -> program.Operands:
    given = operands(case)
    given.hidden, given.weight = (
        x.to(dtype).requires_grad_() for x in (given.hidden, given.weight)
    )
    given.bias = None if given.bias is None else given.bias.to(dtype).requires_grad_()
    return given


def results(
    given: program.Operands, loss: Tensor, counts: Iterable[Any], of_logits: Tensor | None
) -> dict[str, Any]:
    """What a process is compared with, after the backward pass."""
    gradients = {"hidden": given.hidden.grad, "weight": given.weight.grad, "logits": of_logits}
    gradients["bias"] = None if given.bias is None else given.bias.grad
    return {"loss": loss.detach(), "counts": tuple(map(int, counts)), **gradients}


def reference(case: Case) -> dict[str, Any]:
    """Loss, counts and gradients of one process, in float64 from the formula."""
    given = leaves(case, torch.float64)
    logits = given.logits
    logits.retain_grad()
    settings = {"weight": given.class_weight, "reduction": case.reduction}
    loss, _, counts = as_softmax_reference(logits, given.target, case.delta, **settings)
    loss.backward(given.upstream.double())
    return results(given, loss, counts, logits.grad)


def one_process(case: Case) -> dict[str, Any]:
    """The same by the library's own functions on one process, in the dtype of the case."""
    given = leaves(case, case.dtype)
    settings: dict[str, Any] = {"reduction": case.reduction, "return_counts": True}
    head: dict[str, Any] = {"bias": given.bias, "weight": given.class_weight, **settings}
    with torch.autocast("cpu", enabled=case.autocast):
        loss, counts = as_linear_cross_entropy(
            given.hidden, given.weight, given.target, case.delta, **head
        )
    loss.backward(given.upstream)
    logits = given.logits.detach().requires_grad_()
    of_logits, _ = as_cross_entropy(
        logits, given.target, case.delta, weight=given.class_weight, **settings
    )
    of_logits.backward(given.upstream)
    return results(given, loss, counts, logits.grad)


def assert_equal(found: dict[str, Any], expected: dict[str, Any], case: Case, *names: str) -> None:
    for name in ("loss", *names):
        if expected[name] is None:
            assert found[name] is None
            continue
        assert found[name].dtype == case.dtype
        torch.testing.assert_close(
            found[name].double(), expected[name].double(), **TOLERANCE[case.dtype]
        )
    assert tuple(map(int, found["counts"])) == expected["counts"]


HALF = [name for name, case in LINEAR_CASES.items() if case.rounding > 1e-6]
FULL = [name for name in LINEAR_CASES if name not in HALF]


@pytest.mark.parametrize("name", FULL)
def test_the_head_equals_one_process(seen: Seen, name: str):
    expected = reference(LINEAR_CASES[name])
    for rank in seen("linear_heads"):
        assert_equal(rank[name], expected, LINEAR_CASES[name], "hidden", "weight", "bias")


@pytest.mark.parametrize("name", HALF)
def test_the_head_of_a_half_type_is_as_near_as_that_of_one_process(seen: Seen, name: str):
    case = LINEAR_CASES[name]
    exact, alone = reference(case), one_process(case)
    for rank in seen("linear_heads"):
        found = rank[name]
        assert found["loss"].dtype == case.dtype
        # a logit is rounded in either, so that a class at the margin may fall on either side
        assert int(found["counts"].samples) == exact["counts"][1]
        for key in ("loss", "hidden", "weight", "bias"):
            error, own = (
                (x[key].double() - exact[key]).norm() / exact[key].norm() for x in (found, alone)
            )
            assert error <= 2 * own + 2 * case.rounding


def test_rows_of_every_kind_are_among_the_cases():
    masked, samples, masked_classes, classes = reference(LINEAR_CASES["uneven"])["counts"]
    assert 0 < masked < samples
    assert masked * 24 < masked_classes < classes
    assert LINEAR_CASES["uneven"].classes == 25


@pytest.mark.parametrize("name", LINEAR_CASES)
def test_every_process_has_the_same_loss_and_counts_and_each_gradient_is_placed_as_its_operand(
    seen: Seen, name: str
):
    hidden = {"plain": "plain", "replicate": "R", "shard": "S(0)"}[LINEAR_CASES[name].hidden]
    first, *_ = ranks = seen("linear_heads")
    for rank in ranks:
        assert torch.equal(first[name]["loss"], rank[name]["loss"])
        assert first[name]["counts"] == rank[name]["counts"]
        assert rank[name]["placements"] == [hidden, "S(0)"]


@pytest.mark.parametrize(
    "name", [name for name, case in LOGITS_CASES.items() if case.dtype in TOLERANCE]
)
def test_sharded_logits_equal_one_process(seen: Seen, name: str):
    expected = reference(LOGITS_CASES[name])
    for rank in seen("sharded_logits"):
        assert_equal(rank[name], expected, LOGITS_CASES[name], "logits")
        assert rank[name]["placements"] == [f"S({min(1, len(LOGITS_CASES[name].rows))})"]


def test_sharded_logits_of_a_half_type_equal_one_process(seen: Seen):
    case = LOGITS_CASES["bfloat16"]
    expected = one_process(case)
    for rank in seen("sharded_logits"):
        found = rank["bfloat16"]
        assert tuple(map(int, found["counts"])) == expected["counts"]
        torch.testing.assert_close(found["logits"], expected["logits"], rtol=2e-2, atol=1e-4)


def test_a_group_of_one_process_works(two: Seen):
    expected = reference(LINEAR_CASES["uneven"])
    for rank in two("group_of_one"):
        assert_equal(rank, expected, LINEAR_CASES["uneven"], "hidden", "weight", "bias")


REFUSALS = {
    "weight sharded by "
    "features": r"ValueError: .*weight must be sharded .*, placement Shard\(0\), got "
    r"Shard\(dim=1\)",
    "weight replicated": r"ValueError: the head's weight must be sharded along the "
    r"classes.*full_tensor",
    "two dimensions": r"ValueError: .*weight must lie on a mesh of one dimension, got "
    r'2.*mesh\["tensor_parallel"\]',
    "uneven by hand": r"ValueError: the head's weight must be sharded as .*distribute_tensor does",
    "plain bias": r"TypeError: the head's weight is a DTensor and its bias is not",
    "bias replicated": r"ValueError: the head's bias must be sharded along the classes",
    "plain weight": r"TypeError: hidden is a DTensor and the head's weight is not",
    "another mesh": r"ValueError: the hidden states must lie on the mesh of the classes",
    "features": r"ValueError: the hidden states must have shape \(\.\.\., d\)",
    "devices": r"ValueError: .* must be on one device, got hidden on meta, head_weight on cpu",
    "a target too high": r"IndexError: target must hold class indices from 0 to 23",
    "targets that differ": r"ValueError: target differs between the processes .*Shard\(0\)",
    "targets of other lengths": r"ValueError: target differs between the processes .*Shard\(0\)",
    "logits replicated": r"ValueError: logits must be sharded along the classes, placement "
    r"Shard\(1\)",
    "plain logits": r"TypeError: target is a DTensor and logits is not",
    "a second derivative of "
    "logits": r"RuntimeError: .*differentiated once, .* create_graph=True.*full_tensor",
    "a second derivative of a head": r"RuntimeError: .*differentiated once, .* create_graph=True",
    "a transform of a "
    "head": r"RuntimeError: torch.func transforms .* do not take DTensors.*weight.full_tensor",
    "a tangent of hidden "
    "states": r"RuntimeError: torch.func transforms .* do not take DTensors, and .*weight is one",
    "a transform of logits": r"RuntimeError: torch.func transforms .* do not take DTensors, and "
    r"logits is one",
}


@pytest.mark.parametrize("name", REFUSALS)
def test_bad_input_is_refused_on_every_process(two: Seen, name: str):
    for rank in two("refusals"):
        assert re.match(REFUSALS[name], rank[name])


@pytest.mark.parametrize("name", ["none of its own", *program.HOOKS])
def test_a_head_has_no_hooks_but_those_of_its_parallel_style(two: Seen, name: str):
    message = (
        r"TypeError: .*it has hooks, which would not be called"
        if name in program.HOOKS
        else "no error"
    )
    for rank in two("hooks"):
        assert re.match(message, rank[name])


@pytest.fixture(scope="module")
def alone() -> program.WideClassifier:
    module = program.WideClassifier()
    program.train(module, devices=1)
    return module


def assert_same_weights(rank: dict[str, Any], alone: program.WideClassifier) -> None:
    for name, weight in alone.state_dict().items():
        torch.testing.assert_close(rank["weights"][name], weight, rtol=1e-10, atol=1e-10)
    assert rank["placement"] == "S(0)"


@skipped_by(TENSOR_PARALLEL_OUTSIDE)
def test_training_on_rows_of_its_own_equals_one_process(two: Seen, alone: program.WideClassifier):
    for rank in two("lightning_training_by_rows"):
        assert_same_weights(rank, alone)
        torch.testing.assert_close(rank["losses"], torch.stack(alone.losses), **EXACT)
        assert torch.equal(rank["counts"], torch.stack(alone.counts))


def test_training_on_a_grid_of_rows_and_classes_equals_one_process(
    folder: Path, alone: program.WideClassifier
):
    ranks = seen_by(folder, 4, "lightning_training_on_a_grid")
    for rank in ranks:
        assert_same_weights(rank, alone)
    groups = [
        torch.stack([rank["losses"] for rank in ranks[first : first + 2]]) for first in (0, 2)
    ]
    for losses in groups:
        torch.testing.assert_close(losses[0], losses[1], **EXACT)
    torch.testing.assert_close(
        (groups[0][0] + groups[1][0]) / 2, torch.stack(alone.losses), **EXACT
    )
    assert not torch.allclose(groups[0][0], groups[1][0])


def test_a_training_of_two_processes_that_continues_on_three_equals_one_process(
    folder: Path, alone: program.WideClassifier
):
    for rank in seen_by(folder, 2, "half_of_a_training"):
        torch.testing.assert_close(
            rank["losses"], torch.stack(alone.losses)[: program.BATCHES], **EXACT
        )
        assert torch.equal(rank["counts"], torch.stack(alone.counts)[: program.BATCHES])
    for rank in seen_by(folder, 3, "other_half_of_a_training"):
        torch.testing.assert_close(
            rank["losses"], torch.stack(alone.losses)[program.BATCHES :], **EXACT
        )
        assert_same_weights(rank, alone)
