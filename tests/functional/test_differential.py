"""The public losses against their float64 oracles on random calls; ``make test-slow`` makes tens of
thousands.
"""

import functools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from harness.variant_methods import METHODS, Method
from oracles import variants
from oracles.as_softmax import as_rows, as_softmax_reference, multilabel_reference, reduced
from oracles.variants import by_rows
from torch import Tensor
from torch.nn import functional as F

from as_lightning.functional import (
    as_cross_entropy,
    as_linear_cross_entropy,
    as_softmax_mask,
    asymmetric_loss,
    bce_loss,
    cross_entropy,
    linear_cross_entropy,
    live_samples,
    multilabel_as_cross_entropy,
    multilabel_softmax_loss,
    multilabel_sparse_loss,
)
from as_lightning.functional.kernels import head_loss

FLOATS = (torch.float64, torch.float64, torch.float32, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
TOLERANCE = {torch.float64: 1e-11, torch.float32: 3e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
DELTAS = (0.0, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0)
REDUCTIONS = ("none", "mean", "sum")
KINDS = ("spread", "ties", "up to 1e4", "-inf", "expanded")
LAYOUTS = ("contiguous", "transposed", "every second element", "stacked")
HEAD_KINDS = ("ties", "up to 1e4", "-inf")
LARGEST = 100_000  # classes
BY_INTEGRAL = tuple(
    name for name in METHODS if name.startswith("perturb_max")
)  # their oracle integrates: it is slow
NOT_FORBIDDEN = ("taylor_softmax", "label_smoothing", *BY_INTEGRAL)
LABEL_LOSSES: dict[str, tuple[Callable[..., Tensor], Callable[..., Any], dict[str, float]]] = {
    "multilabel_softmax": (multilabel_softmax_loss, variants.multilabel_softmax_loss, {}),
    "multilabel_sparse": (multilabel_sparse_loss, variants.multilabel_sparse_loss, {"k": 2}),
    "bce": (bce_loss, variants.bce, {}),
    "asymmetric": (
        asymmetric_loss,
        variants.asymmetric,
        {"gamma_negative": 4.0, "gamma_positive": 0.0, "clip": 0.05},
    ),
    "asymmetric_without_clip": (
        asymmetric_loss,
        variants.asymmetric,
        {"gamma_negative": 0.5, "gamma_positive": 1.0, "clip": 0.0},
    ),
}
BY_LABEL = ("bce", "asymmetric", "asymmetric_without_clip")  # the others are losses of samples


def random_shape(generator: random.Random, classes: int) -> tuple[int, ...]:
    """One to five dimensions; at times without samples."""
    if generator.random() < 0.1:
        return (classes,)
    batch = generator.choice((0, 1, 1, 2, 3, 5))
    extra = [
        generator.choice((1, 2, 2, 3, 1, 2, 2, 3, 0))
        for _ in range(generator.choice((0, 0, 0, 1, 2, 3)))
    ]
    return (batch, classes, *extra)


def without_classes(shape: Sequence[int]) -> tuple[int, ...]:
    return (*shape[:1], *shape[2:]) if len(shape) > 1 else ()


def random_layout(generator: random.Random, tensor: Tensor, seen: Counter[str]) -> Tensor:
    """The same values contiguous, transposed in memory, cut out of a larger tensor, or in a
    narrower stride.
    """
    layout = generator.choice((*LAYOUTS, "contiguous"))
    seen[layout] += 1
    if layout == "transposed" and tensor.dim() > 1:
        return tensor.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "every second element":
        wide = torch.zeros(*tensor.shape[:-1], tensor.size(-1) * 2, dtype=tensor.dtype)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if layout == "stacked":
        return torch.stack((tensor, tensor), -1)[..., 0]
    return tensor.contiguous()


def random_logits(
    generator: random.Random, shape: tuple[int, ...], dtype: torch.dtype, seen: Counter[str]
) -> Tensor:
    """Spread, tied, huge, forbidden (-inf) or expanded logits."""
    kind = generator.choice((*KINDS, "spread", "spread", "spread"))
    logits = torch.randn(shape, dtype=torch.float64) * generator.choice((0.3, 1.0, 3.0, 10.0))
    seen.update(
        (kind, str(dtype), f"{len(shape)} dimensions", *(("zero-size",) if 0 in shape else ()))
    )
    if kind == "ties":
        logits = logits.round()
    elif kind == "up to 1e4":
        logits = (logits * 1e4).clamp(-1e4, 1e4)
    elif kind == "-inf":
        logits = logits.masked_fill(torch.rand(shape) < 0.2, -torch.inf)
    elif kind == "expanded" and len(shape) > 1 and shape[0] > 0:
        return logits[:1].to(dtype).expand(shape)
    return random_layout(generator, logits.to(dtype), seen)


def holds(dtype: torch.dtype, number: int) -> bool:
    if dtype == torch.bool or dtype.is_floating_point:
        return dtype.is_floating_point
    return torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max


def ignored_in(
    generator: random.Random, target: Tensor, dtype: torch.dtype, ignore_index: int, share: float
) -> Tensor:
    """The target in ``dtype``, often with ``ignore_index`` in a share of its elements, if the dtype
    can hold it.
    """
    if holds(dtype, ignore_index) and generator.random() < 0.5:
        target = target.masked_fill(torch.rand(target.shape) < share, ignore_index)
    return target.to(dtype)


def random_target(
    generator: random.Random, logits: Tensor, seen: Counter[str], *, narrow: bool = True
) -> tuple[Tensor, int]:
    """Class indices of any integer type that are often the largest logits', and an
    ``ignore_index``.
    """
    class_dim = 0 if logits.dim() == 1 else 1
    classes, shape = logits.size(class_dim), without_classes(logits.shape)
    integer = generator.choice(INTEGERS) if narrow else torch.int64
    target = torch.randint(min(classes, torch.iinfo(integer).max + 1), shape)
    if generator.random() < 0.3 and target.numel() and holds(integer, classes):
        target = logits.argmax(class_dim)
    ignore_index = generator.choice((-100, -100, 0, -1, 300, classes - 1))
    target = ignored_in(generator, target, integer, ignore_index, 0.3)
    if target.dim() and target.numel() and generator.random() < 0.1:
        target = target[:1].expand(shape)
    seen.update((f"targets {integer}", "1 class" if classes == 1 else f"{classes} classes"))
    return target, ignore_index


def near_the_margin(rows: Tensor, target: Tensor, delta: float, tolerance: float) -> bool:
    """Whether rounding may move a class over the margin: then either mask is right."""
    if delta >= 1.0:
        return False
    p, column = rows.double().softmax(-1), target.unsqueeze(-1)
    gaps = (p.gather(-1, column) - p - delta).scatter(-1, column, torch.inf)
    exact_tie = (gaps == 0.0) & (delta == 0.0)
    return bool(((gaps.abs() <= tolerance) & ~exact_tie).any())


def gradient_of(loss: Tensor, leaves: list[Tensor], upstream: Tensor) -> tuple[Tensor, ...]:
    found = torch.autograd.grad(loss, leaves, upstream.to(loss.dtype), allow_unused=True)
    return tuple(
        torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)
    )


def assert_near(
    ours: Tensor, exact: Tensor, dtype: torch.dtype, size: float | None = None, error: float = 0.0
) -> None:
    """Within the tolerance of the dtype for numbers up to ``size``, and twice an error that others
    make.
    """
    exact = exact.detach()
    if size is None:
        size = max(1.0, float(exact.abs().nan_to_num().max())) if exact.numel() else 1.0
    rtol, atol = TOLERANCE[dtype], TOLERANCE[dtype] * size + 2 * error
    torch.testing.assert_close(
        ours.detach().double(), exact.to(dtype).double(), rtol=rtol, atol=atol, equal_nan=True
    )


def assert_gradients_near(
    loss: Tensor,
    leaves: list[Tensor],
    expected: Tensor,
    exact: list[Tensor],
    size: float = 1.0,
    errors: Callable[[Tensor, Sequence[Tensor]], Sequence[float]] | None = None,
) -> None:
    """The gradients of ``leaves`` are those of ``exact``; ``errors`` are those that others make."""
    if not expected.requires_grad or not expected.numel() or expected.isnan().any():
        return
    dtype = leaves[0].dtype
    upstream = torch.randn(expected.shape, dtype=torch.float64).to(dtype).double()
    true = gradient_of(expected, exact, upstream)
    allowed = [0.0] * len(true) if errors is None else errors(upstream, true)
    ours = gradient_of(loss.reshape(expected.shape), leaves, upstream)
    for mine, theirs, error in zip(ours, true, allowed, strict=True):
        assert_near(mine, theirs, dtype, size * max(1.0, float(upstream.abs().max())), error)


def random_classes(generator: random.Random, wide: bool, few: tuple[int, ...]) -> int:
    return (
        generator.choice((LARGEST, round(10 ** generator.uniform(3, 5))))
        if wide
        else generator.choice(few)
    )


def one_case_of_class_rows(
    generator: random.Random, seen: Counter[str], wide: bool = False
) -> bool:
    """Compare one call; False where the margin falls within rounding and there is nothing to
    compare.
    """
    classes = random_classes(generator, wide, (1, 2, 2, 3, 5, 8, 17, 40))
    dtype = generator.choice(FLOATS)
    shape = (generator.choice((1, 3)), classes) if wide else random_shape(generator, classes)
    logits = random_logits(generator, shape, dtype, seen)
    target, ignore_index = random_target(generator, logits, seen, narrow=not wide)
    delta, reduction = generator.choice((*DELTAS, generator.random())), generator.choice(REDUCTIONS)
    weight = torch.rand(classes) + 0.1 if generator.random() < 0.3 else None
    flat = target.long().reshape(-1)
    if not as_rows(logits).gather(-1, flat.clamp(0, classes - 1).unsqueeze(-1)).isfinite().all():
        return False  # a forbidden target: the loss is infinite, and its gradient undefined
    safe = flat.masked_fill(flat == ignore_index, 0)
    if near_the_margin(as_rows(logits), safe, delta, 1e-13 if dtype == torch.float64 else 1e-6):
        return False
    exact = logits.detach().double().contiguous().requires_grad_()
    options: dict[str, Any] = {
        "weight": weight,
        "ignore_index": ignore_index,
        "reduction": reduction,
    }
    expected, keep, counts = as_softmax_reference(exact, target, delta, **options)
    leaf = (
        logits.detach().requires_grad_()
        if generator.random() < 0.5
        else logits.detach().clone().requires_grad_()
    )
    loss, found = as_cross_entropy(leaf, target, delta, return_counts=True, **options)
    assert loss.dtype == dtype
    assert tuple(map(int, found)) == counts
    counted = flat != ignore_index
    live = (keep.sum(-1) > 1) & counted
    assert torch.equal(live_samples(leaf, target, delta, ignore_index).reshape(-1), live)
    assert torch.equal(
        as_rows(as_softmax_mask(leaf, target, delta, ignore_index))[counted], keep[counted]
    )
    assert_near(loss, expected, dtype)
    assert_gradients_near(loss, [leaf], expected, [exact], 1.0 if weight is None else 2.0)
    return True


def head_operands(
    generator: random.Random,
    seen: Counter[str],
    dtype: torch.dtype,
    classes: int,
    kind: str,
    shape: tuple[int, ...],
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Hidden states, weight and bias. Of ties and large logits every logit is an integer, exact in
    all dtypes.
    """
    features = generator.choice((1, 3, 8))
    hidden = torch.randn(*shape, features, dtype=torch.float64) * generator.choice((0.3, 1.0, 4.0))
    weight, bias = (
        torch.randn(classes, features, dtype=torch.float64),
        torch.randn(classes, dtype=torch.float64),
    )
    if kind == "ties":
        hidden, weight, bias = (
            hidden.round().clamp(-3, 3),
            weight.round().clamp(-3, 3),
            bias.round(),
        )
    elif kind == "up to 1e4":
        hidden, weight, bias = (
            1024 * hidden.round().clamp(-1, 1),
            weight.round().clamp(-1, 1),
            bias * 0,
        )
    elif kind == "-inf":
        bias = bias.masked_fill(torch.rand(classes) < 0.3, -torch.inf)
    hidden, weight = (
        random_layout(generator, tensor.to(dtype), seen) for tensor in (hidden, weight)
    )
    return hidden, weight, bias.to(dtype) if kind == "-inf" or generator.random() < 0.5 else None


def dense_errors(
    leaves: list[Tensor], keep: Tensor, upstream: Tensor, exact: Sequence[Tensor], **loss: Any
) -> list[float]:
    """The largest error in each gradient of ``F.linear`` and ``F.cross_entropy``, in the dtype of
    the leaves. On some processors each sum of 100,000 equal exponentials is off by 1e-4.
    """
    logits = F.linear(*leaves).reshape(keep.shape).masked_fill(~keep, -torch.inf)
    gradients = gradient_of(
        F.cross_entropy(logits, **loss).reshape(upstream.shape), leaves, upstream
    )
    return [
        float((gradient.double() - true).abs().nan_to_num(0.0, 0.0, 0.0).max())
        if true.numel()
        else 0.0
        for gradient, true in zip(gradients, exact, strict=True)
    ]


def one_case_of_the_fused_head(
    generator: random.Random, seen: Counter[str], wide: bool = False
) -> bool:
    """The fused head against the oracle of its logits, which are computed in float64."""
    classes = random_classes(generator, wide, (1, 2, 5, 40, 90))
    delta, reduction = generator.choice((*DELTAS, generator.random())), generator.choice(REDUCTIONS)
    kind, dtype = (
        generator.choice(("spread", "spread", "spread", *HEAD_KINDS)),
        generator.choice(FLOATS),
    )
    half = dtype in (torch.bfloat16, torch.float16)
    if half and delta < 1.0 and kind not in ("ties", "up to 1e4"):
        # logits of half types are rounded before the margin is measured, unless they are exact
        return False
    shape = tuple(generator.choice((1, 2, 3, 0)) for _ in range(generator.choice((0, 1, 1, 2, 3))))
    shape = (generator.choice((1, 3)),) if wide else shape
    hidden, weight, bias = head_operands(generator, seen, dtype, classes, kind, shape)
    integer = torch.int64 if wide else generator.choice(INTEGERS)
    ignore_index = generator.choice(
        (255, 255, 300, -100) if integer == torch.uint8 else (-100, -100, 300)
    )
    target = ignored_in(generator, torch.randint(classes, shape), integer, ignore_index, 0.3)
    class_weight = torch.rand(classes) + 0.1 if generator.random() < 0.3 else None
    seen.update(
        (
            f"targets {integer}",
            str(dtype),
            f"{classes} classes",
            *(("zero-size",) if 0 in shape else ()),
        )
    )
    seen.update((kind, *(("a half type at a margin",) if half and delta < 1.0 else ())))
    seen.update(("class weights",) if class_weight is not None else ())
    leaves = [x.detach().clone().requires_grad_() for x in (hidden, weight, bias) if x is not None]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    logits, flat = F.linear(*exact).reshape(-1, classes), target.long().reshape(-1)
    safe = flat.masked_fill(flat == ignore_index, 0)
    column = safe.unsqueeze(-1)
    if not logits.gather(-1, column).isfinite().all():
        return False  # a forbidden target
    if near_the_margin(logits.detach(), safe, delta, 1e-12 if dtype == torch.float64 else 1e-5):
        return False
    options: dict[str, Any] = {
        "weight": class_weight,
        "ignore_index": ignore_index,
        "reduction": reduction,
    }
    expected, keep, counts = as_softmax_reference(logits, flat, delta, **options)
    bias = leaves[2] if bias is not None else None
    loss, found = as_linear_cross_entropy(
        *leaves[:2], target, delta, bias=bias, return_counts=True, **options
    )
    assert tuple(map(int, found)) == counts
    if delta == 1.0:
        plain = linear_cross_entropy(*leaves[:2], target, linear_bias=bias, **options)
        assert torch.equal(plain.nan_to_num(), loss.nan_to_num())
    assert_near(loss.reshape(expected.shape), expected, dtype)
    # an upstream gradient times a probability times a hidden state or a weight
    largest = max(1.0, *(float(x.detach().abs().max()) for x in exact[:2] if x.numel()))
    errors = None
    if wide and dtype == torch.float32:
        errors = functools.partial(dense_errors, leaves, keep, target=flat, **options)
    assert_gradients_near(loss, leaves, expected, exact, largest, errors)
    return True


def random_labels(
    generator: random.Random,
    logits: Tensor,
    ignore_index: int,
    seen: Counter[str],
    positives: tuple[float, ...],
) -> Tensor:
    """0 and 1 in any dtype, and labels that are not known where the dtype can hold
    ``ignore_index``.
    """
    dtype = generator.choice((torch.bool, *INTEGERS, torch.float32))
    # a positive label that is forbidden has an infinite loss
    target = ((torch.rand(logits.shape) < generator.choice(positives)) & logits.isfinite()).to(
        dtype
    )
    target = ignored_in(generator, target, dtype, ignore_index, generator.choice((0.2, 0.7)))
    seen.update(
        (
            f"targets {dtype}",
            *(("unknown labels",) if (target.double() == ignore_index).any() else ()),
        )
    )
    return target


def one_case_of_several_labels(generator: random.Random, seen: Counter[str]) -> bool:
    classes = generator.choice((1, 2, 3, 8, 20))
    dtype, reduction = generator.choice(FLOATS), generator.choice(REDUCTIONS)
    logits = random_logits(generator, random_shape(generator, classes), dtype, seen)
    class_dim = 1 if logits.dim() > 1 else 0
    ignore_index = generator.choice((-100, -100, -1, 2, 300))
    target = random_labels(generator, logits, ignore_index, seen, (0.0, 0.3, 0.6, 1.0))
    known = target.double() != ignore_index
    if not ((logits.isfinite() & known).any(class_dim) | ~known.any(class_dim)).all():
        return False  # a sample of which every label is forbidden
    delta = generator.choice(DELTAS)
    exact = logits.detach().double().requires_grad_()
    expected, counts = multilabel_reference(exact, target, delta, ignore_index, reduction)
    nearby = [
        multilabel_reference(exact, target, min(max(delta + d, 0.0), 1.0), ignore_index)
        for d in (-1e-6, 1e-6)
    ]
    if [found for _, found in nearby] != [counts] * 2:
        return False
    leaf = logits.detach().requires_grad_()
    loss, found = multilabel_as_cross_entropy(
        leaf, target, delta, ignore_index=ignore_index, reduction=reduction, return_counts=True
    )
    assert tuple(map(int, found)) == counts
    assert int(live_samples(leaf, target, delta, ignore_index).sum()) == counts[1] - counts[0]
    seen[reduction] += 1
    assert_near(loss, expected, dtype)
    assert_gradients_near(loss, [leaf], expected, [exact])
    return True


def either_class_is_kept(method: Method, rows: Tensor, targets: Tensor) -> bool:
    """Whether the target is one of several classes that tie for the last place among the ``k``
    largest.
    """
    k = method.arguments.get("k")
    if k is None or rows.numel() == 0:
        return False
    own, last = rows.gather(-1, targets.unsqueeze(-1)).squeeze(-1), rows.topk(k, -1).values[:, -1]
    return bool(((own == last) & ((rows >= last.unsqueeze(-1)).sum(-1) > k)).any())


def one_case_of_the_family(generator: random.Random, seen: Counter[str]) -> bool:
    """A loss with one class for each sample, of NumPy's and SciPy's formula, which has
    no gradient.
    """
    name = generator.choice(tuple(METHODS))
    method = METHODS[name]
    by_integral = name in BY_INTEGRAL
    classes = generator.choice((3, 5, 8) if by_integral else (3, 4, 8, 17, 17, 40, 1000))
    dtype, reduction = generator.choice(FLOATS), generator.choice(REDUCTIONS)
    if name.startswith("class_weighted") and reduction == "mean":
        return False  # which divides by the classes' weights
    shape = (
        (generator.choice((1, 2)), classes)
        if by_integral or classes == 1000
        else random_shape(generator, classes)
    )
    logits = random_logits(generator, shape, dtype, seen)
    # outside its range: a density has no mass so far out, a polynomial no value at -inf, and a
    # smoothed label no loss
    if (by_integral and float(logits.abs().max()) > 30) or (
        name.startswith(NOT_FORBIDDEN) and logits.isinf().any()
    ):
        return False
    target, ignore_index = random_target(generator, logits, seen)
    flat = target.long().reshape(-1)
    counted, safe = flat != ignore_index, flat.masked_fill(flat == ignore_index, 0)
    rows = as_rows(logits.double())
    own = rows.gather(-1, safe.unsqueeze(-1)).squeeze(-1)
    if not own[counted].isfinite().all() or either_class_is_kept(
        method, rows[counted], safe[counted]
    ):
        return False
    weight = (
        torch.rand(classes) + 0.1
        if generator.random() < 0.3 and name != "label_smoothing"
        else None
    )
    finite = rows[counted].clamp(min=-1e30).numpy()
    losses = torch.zeros(len(rows), dtype=torch.float64)
    arguments = method.all_loss_arguments
    losses[counted] = torch.from_numpy(
        by_rows(method.reference_loss, finite, safe[counted].numpy(), **arguments)
    )
    weights = (
        torch.ones(len(rows), dtype=torch.float64) if weight is None else weight.double()[safe]
    )
    weights = weights.where(counted, 0.0)
    expected = reduced(losses * weights, weights, reduction, target.shape)
    found = method.loss(
        logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction, **arguments
    )
    assert found.dtype == dtype
    size = max(1.0, float(expected.abs().nan_to_num().max())) if expected.numel() else 1.0
    exactness = {**TOLERANCE, torch.float64: 1e-6, torch.float32: 1e-4}[dtype]
    torch.testing.assert_close(
        found.double(),
        expected.to(dtype).double(),
        rtol=exactness,
        atol=exactness * size,
        equal_nan=True,
    )
    seen[name] += 1
    return True


def one_case_of_labels_of_the_family(generator: random.Random, seen: Counter[str]) -> bool:
    """A loss with several labels for each sample."""
    name = generator.choice(tuple(LABEL_LOSSES))
    loss, oracle, arguments = LABEL_LOSSES[name]
    classes = generator.choice((2, 3, 8, 20, 1000))
    dtype, reduction = generator.choice(FLOATS), generator.choice(REDUCTIONS)
    shape = (2, classes) if classes == 1000 else random_shape(generator, classes)
    logits = random_logits(generator, shape, dtype, seen)
    if name == "bce" and logits.isinf().any():
        return False  # PyTorch's binary cross-entropy is NaN there
    ignore_index = generator.choice((-100, -100, -1, 2, 300))
    target = random_labels(generator, logits, ignore_index, seen, (0.0, 0.3, 0.6, 1.0))
    rows, labels = as_rows(logits.double()), as_rows(target.double())
    known = labels != ignore_index
    if name in BY_LABEL:
        losses, counted = torch.zeros_like(rows), known
        losses[known] = torch.from_numpy(
            oracle(rows[known].numpy(), labels[known].numpy(), **arguments)
        )
        if reduction == "none" and logits.dim() > 1:
            losses = losses.reshape(*without_classes(shape), classes).movedim(-1, 1)
    else:
        samples = [
            (row[k].numpy(), label[k].numpy())
            for row, label, k in zip(rows, labels, known, strict=True)
        ]
        losses = torch.tensor([oracle(x, y, **arguments) for x, y in samples], dtype=torch.float64)
        counted = known.any(-1)
    expected = reduced(
        losses, counted, reduction, shape if name in BY_LABEL else without_classes(shape)
    )
    found = loss(logits, target, ignore_index=ignore_index, reduction=reduction, **arguments)
    assert found.dtype == dtype
    assert_near(found, expected, dtype)
    seen.update((name, f"{classes} classes"))
    return True


CASES: dict[str, tuple[int, Callable[[random.Random, Counter[str]], bool]]] = {
    "class rows": (13_500, one_case_of_class_rows),
    "fused head": (5_000, one_case_of_the_fused_head),
    "several labels": (5_000, one_case_of_several_labels),
    "up to 100,000 classes": (60, functools.partial(one_case_of_class_rows, wide=True)),
    "fused head of up to 100,000 classes": (
        60,
        functools.partial(one_case_of_the_fused_head, wide=True),
    ),
    "the family": (4_000, one_case_of_the_family),
    "several labels of the family": (2_000, one_case_of_labels_of_the_family),
}
OF_ALL_TENSORS = {
    *map(str, FLOATS),
    "zero-size",
    *LAYOUTS,
    *(f"targets {integer}" for integer in INTEGERS),
}
OF_LOGITS = {f"{dimensions} dimensions" for dimensions in range(1, 6)} | {*KINDS}
COVERED = {
    "class rows": OF_ALL_TENSORS | OF_LOGITS | {"1 class"},
    "fused head": OF_ALL_TENSORS | {*HEAD_KINDS, "a half type at a margin", "class weights"},
    "several labels": OF_ALL_TENSORS | OF_LOGITS | {*REDUCTIONS, "unknown labels"},
    "up to 100,000 classes": {f"{LARGEST} classes", *KINDS, *map(str, FLOATS)},
    "fused head of up to 100,000 classes": {
        f"{LARGEST} classes",
        *HEAD_KINDS,
        *map(str, FLOATS),
        "class weights",
    },
    "the family": OF_ALL_TENSORS | OF_LOGITS | {*METHODS, "1000 classes"},
    "several labels of the family": OF_ALL_TENSORS
    | OF_LOGITS
    | {*LABEL_LOSSES, "unknown labels", "1000 classes"},
}


@pytest.mark.parametrize(
    "share", [0.02, pytest.param(1.0, marks=pytest.mark.slow)], ids=["500", "20000"]
)
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.bug_report(
    "pytorch/pytorch#15508",
    "`ignore_index=255` is out of bounds as soon as the losses are not reduced.",
)
def test_every_loss_agrees_with_the_float64_oracle_on_random_calls(
    kind: str,
    share: float,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    assert sum(wanted for wanted, _ in CASES.values()) >= 20_000
    wanted, one_case = round(CASES[kind][0] * share), CASES[kind][1]
    generator, compared, seen = random.Random(20_000), 0, Counter[str]()
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)
    while compared < wanted:
        torch.manual_seed(generator.randrange(1 << 30))
        rows = generator.choice((2, 16))
        monkeypatch.setattr(head_loss, "workspace_rows", lambda *_, rows=rows: rows)
        monkeypatch.setattr(cross_entropy, "FEW_LOGITS", generator.choice((0, 1 << 16)))
        of_this_case = Counter[str]()
        if one_case(generator, of_this_case):
            compared += 1
            seen += of_this_case
    assert share < 1.0 or COVERED[kind] <= seen.keys()
    record_property("random calls agree with the float64 oracle", compared)
