"""The public losses against their float64 oracles on random calls; ``make test-slow`` makes tens of
thousands.
"""

import random
from functools import partial

import pytest
import torch
from harness.gpu_kernel import take_the_kernel_of_a_gpu
from harness.variant_methods import METHODS
from oracles import variants
from oracles.as_softmax import as_rows, as_softmax_reference, multilabel_reference, reduced
from oracles.variants import by_rows
from torch.nn import functional as F

from as_lightning.functional import (
    as_cross_entropy,
    as_linear_cross_entropy,
    as_softmax_mask,
    asymmetric_loss,
    bce_loss,
    cross_entropy,
    linear_cross_entropy,
    multilabel_as_cross_entropy,
    multilabel_softmax_loss,
    multilabel_sparse_loss,
)
from as_lightning.functional.kernels import head_loss, row_loss

FLOATS = (torch.float64, torch.float64, torch.float32, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
TOLERANCE = {torch.float64: 1e-11, torch.float32: 3e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
OF_THE_FAMILY = TOLERANCE | {torch.float64: 1e-6, torch.float32: 1e-4}
DELTAS = (0.0, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0)
REDUCTIONS = ("none", "mean", "sum")
KINDS = ("spread", "ties", "up to 1e4", "-inf", "expanded")
LAYOUTS = ("contiguous", "contiguous", "transposed", "every second element", "stacked")
LARGEST = 100_000  # classes
# their oracle integrates: it is slow
BY_INTEGRAL = tuple(name for name in METHODS if name.startswith("perturb_max"))
NOT_FORBIDDEN = ("taylor_softmax", *BY_INTEGRAL)
FOCUS = {"gamma_negative": 4.0, "gamma_positive": 0.0, "clip": 0.05}
WITHOUT_CLIP = {"gamma_negative": 0.5, "gamma_positive": 1.0, "clip": 0.0}
LABEL_LOSSES = {
    "multilabel_softmax": (multilabel_softmax_loss, variants.multilabel_softmax_loss, {}),
    "multilabel_sparse": (multilabel_sparse_loss, variants.multilabel_sparse_loss, {"k": 2}),
    "bce": (bce_loss, variants.bce, {}),
    "asymmetric": (asymmetric_loss, variants.asymmetric, FOCUS),
    "without clip": (asymmetric_loss, variants.asymmetric, WITHOUT_CLIP),
}
BY_LABEL = ("bce", "asymmetric", "without clip")  # the others are losses of samples


def random_shape(generator, classes):
    """One to five dimensions; at times without samples."""
    if generator.random() < 0.1:
        return (classes,)
    batch = generator.choice((0, 1, 1, 2, 3, 5))
    sizes, dimensions = (1, 2, 2, 3, 1, 2, 2, 3, 0), generator.choice((0, 0, 0, 1, 2, 3))
    return (batch, classes, *(generator.choice(sizes) for _ in range(dimensions)))


def without_classes(shape):
    return (*shape[:1], *shape[2:]) if len(shape) > 1 else ()


def random_layout(generator, tensor):
    """The same values contiguous, transposed in memory, cut out of a larger tensor, or in a
    narrower stride.
    """
    layout = generator.choice(LAYOUTS)
    if layout == "transposed" and tensor.dim() > 1:
        return tensor.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "every second element":
        wide = torch.zeros(*tensor.shape[:-1], tensor.size(-1) * 2, dtype=tensor.dtype)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if layout == "stacked":
        return torch.stack((tensor, tensor), -1)[..., 0]
    return tensor.contiguous()


def random_logits(generator, shape, dtype):
    """Spread, tied, huge, forbidden (-inf) or expanded logits."""
    kind = generator.choice((*KINDS, "spread", "spread", "spread"))
    logits = torch.randn(shape, dtype=torch.float64) * generator.choice((0.3, 1.0, 3.0, 10.0))
    if kind == "ties":
        logits = logits.round()
    elif kind == "up to 1e4":
        logits = (logits * 1e4).clamp(-1e4, 1e4)
    elif kind == "-inf":
        logits = logits.masked_fill(torch.rand(shape) < 0.2, -torch.inf)
    elif kind == "expanded" and len(shape) > 1 and shape[0] > 0:
        return logits[:1].to(dtype).expand(shape)
    return random_layout(generator, logits.to(dtype))


def holds(dtype, number):
    if dtype == torch.bool or dtype.is_floating_point:
        return dtype.is_floating_point
    return torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max


def ignored_in(generator, target, dtype, ignore_index, share=0.3):
    """The target in ``dtype``, often with ``ignore_index`` in a share of its elements, if the dtype
    can hold it.
    """
    if holds(dtype, ignore_index) and generator.random() < 0.5:
        target = target.masked_fill(torch.rand(target.shape) < share, ignore_index)
    return target.to(dtype)


def random_target(generator, logits, *, narrow=True):
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
    target = ignored_in(generator, target, integer, ignore_index)
    if target.dim() and target.numel() and generator.random() < 0.1:
        target = target[:1].expand(shape)
    return target, ignore_index


def near_the_margin(rows, target, delta, tolerance):
    """Whether rounding may move a class over the margin: then either mask is right."""
    if delta >= 1.0:
        return False
    p, column = rows.double().softmax(-1), target.unsqueeze(-1)
    gaps = (p.gather(-1, column) - p - delta).scatter(-1, column, torch.inf)
    exact_tie = (gaps == 0.0) & (delta == 0.0)
    return bool(((gaps.abs() <= tolerance) & ~exact_tie).any())


def gradient_of(loss, leaves, upstream):
    found = torch.autograd.grad(loss, leaves, upstream.to(loss.dtype), allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]


def assert_near(ours, exact, dtype, size=None, tolerance=TOLERANCE):
    """Within the tolerance of the dtype for numbers up to ``size``."""
    exact = exact.detach()
    if size is None:
        size = max(1.0, float(exact.abs().nan_to_num().max())) if exact.numel() else 1.0
    near = {"rtol": tolerance[dtype], "atol": tolerance[dtype] * size, "equal_nan": True}
    torch.testing.assert_close(ours.detach().double(), exact.to(dtype).double(), **near)


def assert_gradients_near(loss, leaves, expected, exact, size=1.0):
    """The gradients of ``leaves`` are those of ``exact``."""
    if not expected.requires_grad or not expected.numel() or expected.isnan().any():
        return
    dtype = leaves[0].dtype
    upstream = torch.randn(expected.shape, dtype=torch.float64).to(dtype).double()
    true = gradient_of(expected, exact, upstream)
    ours = gradient_of(loss.reshape(expected.shape), leaves, upstream)
    for mine, theirs in zip(ours, true, strict=True):
        assert_near(mine, theirs, dtype, size * max(1.0, float(upstream.abs().max())))


def random_classes(generator, wide, few):
    if wide:
        return generator.choice((LARGEST, round(10 ** generator.uniform(3, 5))))
    return generator.choice(few)


def random_options(generator, classes, ignore_index):
    weight = torch.rand(classes) + 0.1 if generator.random() < 0.3 else None
    reduction = generator.choice(REDUCTIONS)
    return {"weight": weight, "ignore_index": ignore_index, "reduction": reduction}


def one_case_of_class_rows(generator, wide=False):
    """Compare one call; False where the margin falls within rounding and there is nothing to
    compare.
    """
    classes = random_classes(generator, wide, (1, 2, 2, 3, 5, 8, 17, 40))
    dtype = generator.choice(FLOATS)
    shape = (generator.choice((1, 3)), classes) if wide else random_shape(generator, classes)
    logits = random_logits(generator, shape, dtype)
    target, ignore_index = random_target(generator, logits, narrow=not wide)
    delta = generator.choice((*DELTAS, generator.random()))
    options, flat = random_options(generator, classes, ignore_index), target.long().reshape(-1)
    if not as_rows(logits).gather(-1, flat.clamp(0, classes - 1).unsqueeze(-1)).isfinite().all():
        return False  # a forbidden target: the loss is infinite, and its gradient undefined
    safe = flat.masked_fill(flat == ignore_index, 0)
    if near_the_margin(as_rows(logits), safe, delta, 1e-13 if dtype == torch.float64 else 1e-6):
        return False
    exact = logits.detach().double().contiguous().requires_grad_()
    expected, keep, counts = as_softmax_reference(exact, target, delta, **options)
    leaf = logits.detach()
    if generator.random() < 0.5:
        leaf = leaf.clone()
    loss, found = as_cross_entropy(
        leaf.requires_grad_(), target, delta, return_counts=True, **options
    )
    assert loss.dtype == dtype
    assert tuple(map(int, found)) == counts
    counted = flat != ignore_index
    mask = as_rows(as_softmax_mask(leaf, target, delta, ignore_index))
    assert torch.equal(mask[counted], keep[counted])
    assert_near(loss, expected, dtype)
    assert_gradients_near(loss, [leaf], expected, [exact], 2.0)
    return True


def head_operands(generator, dtype, classes, kind, shape):
    """Hidden states, weight and bias. Of ties and large logits every logit is an integer, exact in
    all dtypes.
    """
    features = generator.choice((1, 3, 8))
    hidden = torch.randn(*shape, features, dtype=torch.float64) * generator.choice((0.3, 1.0, 4.0))
    weight = torch.randn(classes, features, dtype=torch.float64)
    bias = torch.randn(classes, dtype=torch.float64)
    if kind == "ties":
        hidden, weight = hidden.round().clamp(-3, 3), weight.round().clamp(-3, 3)
        bias = bias.round()
    elif kind == "up to 1e4":
        hidden, weight = 1024 * hidden.round().clamp(-1, 1), weight.round().clamp(-1, 1)
        bias = bias * 0
    elif kind == "-inf":
        bias = bias.masked_fill(torch.rand(classes) < 0.3, -torch.inf)
    operands = [random_layout(generator, tensor.to(dtype)) for tensor in (hidden, weight)]
    if kind == "-inf" or generator.random() < 0.5:
        operands.append(bias.to(dtype))
    return operands


def one_case_of_the_fused_head(generator, wide=False):
    """The fused head against the oracle of its logits, which are computed in float64."""
    classes = random_classes(generator, wide, (1, 2, 5, 40, 90))
    delta = generator.choice((*DELTAS, generator.random()))
    kind = generator.choice(("spread", "spread", "spread", "ties", "up to 1e4", "-inf"))
    dtype = generator.choice(FLOATS)
    if dtype.itemsize == 2 and delta < 1.0 and kind not in ("ties", "up to 1e4"):
        # logits of half types are rounded before the margin is measured, unless they are exact
        return False
    shape = tuple(generator.choice((1, 2, 3, 0)) for _ in range(generator.choice((0, 1, 1, 2, 3))))
    shape = (generator.choice((1, 3)),) if wide else shape
    operands = head_operands(generator, dtype, classes, kind, shape)
    integer = torch.int64 if wide else generator.choice(INTEGERS)
    indices = (255, 255, 300, -100) if integer == torch.uint8 else (-100, -100, 300)
    options = random_options(generator, classes, generator.choice(indices))
    ignore_index = options["ignore_index"]
    leaves = [x.detach().clone().requires_grad_() for x in operands]
    exact = [x.detach().double().requires_grad_() for x in leaves]
    logits, target = F.linear(*exact).reshape(-1, classes), torch.randint(classes, shape)
    if generator.random() < 0.5:
        target = logits.argmax(-1).reshape(shape)
    target = ignored_in(generator, target, integer, ignore_index)
    flat = target.long().reshape(-1)
    safe = flat.masked_fill(flat == ignore_index, 0)
    if not logits.gather(-1, safe.unsqueeze(-1)).isfinite().all():
        return False  # a forbidden target
    if near_the_margin(logits.detach(), safe, delta, 1e-12 if dtype == torch.float64 else 1e-5):
        return False
    expected, _, counts = as_softmax_reference(logits, flat, delta, **options)
    bias = leaves[2] if len(leaves) > 2 else None
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
    # on some processors each sum of 100,000 equal exponentials is off by 1e-4 in float32
    assert_gradients_near(loss, leaves, expected, exact, 10 * largest if wide else largest)
    return True


def random_labels(generator, logits, ignore_index):
    """0 and 1 in any dtype, and labels that are not known where the dtype can hold
    ``ignore_index``.
    """
    dtype = generator.choice((torch.bool, *INTEGERS, torch.float32))
    # a positive label that is forbidden has an infinite loss
    positive = torch.rand(logits.shape) < generator.choice((0.0, 0.3, 0.6, 1.0))
    target = (positive & logits.isfinite()).to(dtype)
    return ignored_in(generator, target, dtype, ignore_index, generator.choice((0.2, 0.7)))


def one_case_of_several_labels(generator):
    classes = generator.choice((1, 2, 3, 8, 20))
    dtype, reduction = generator.choice(FLOATS), generator.choice(REDUCTIONS)
    logits = random_logits(generator, random_shape(generator, classes), dtype)
    class_dim = 1 if logits.dim() > 1 else 0
    ignore_index = generator.choice((-100, -100, -1, 2, 300))
    target = random_labels(generator, logits, ignore_index)
    known = target.double() != ignore_index
    if not ((logits.isfinite() & known).any(class_dim) | ~known.any(class_dim)).all():
        return False  # a sample of which every label is forbidden
    delta = generator.choice(DELTAS)
    exact = logits.detach().double().requires_grad_()
    expected, counts = multilabel_reference(exact, target, delta, ignore_index, reduction)
    for nearby in (max(delta - 1e-6, 0.0), min(delta + 1e-6, 1.0)):
        if multilabel_reference(exact, target, nearby, ignore_index)[1] != counts:
            return False
    leaf = logits.detach().requires_grad_()
    loss, found = multilabel_as_cross_entropy(
        leaf, target, delta, ignore_index=ignore_index, reduction=reduction, return_counts=True
    )
    assert tuple(map(int, found)) == counts
    assert_near(loss, expected, dtype)
    assert_gradients_near(loss, [leaf], expected, [exact])
    return True


def either_class_is_kept(method, rows, targets):
    """Whether the target is one of several classes that tie for the last place among the ``k``
    largest.
    """
    k = method.arguments.get("k")
    if k is None or rows.numel() == 0:
        return False
    own, last = rows.gather(-1, targets.unsqueeze(-1)).squeeze(-1), rows.topk(k, -1).values[:, -1]
    return bool(((own == last) & ((rows >= last.unsqueeze(-1)).sum(-1) > k)).any())


def one_case_of_the_family(generator):
    """A loss with one class for each sample, of NumPy's and SciPy's formula, which has
    no gradient.
    """
    name = generator.choice(tuple(METHODS))
    method, by_integral = METHODS[name], name in BY_INTEGRAL
    classes = generator.choice((3, 5, 8) if by_integral else (3, 4, 8, 17, 17, 40, 1000))
    dtype, shape = generator.choice(FLOATS), random_shape(generator, classes)
    if by_integral or classes == 1000:
        shape = (generator.choice((1, 2)), classes)
    logits = random_logits(generator, shape, dtype)
    # outside its range: a density has no mass so far out, a polynomial no value at -inf
    if by_integral and float(logits.abs().max()) > 30:
        return False
    if name.startswith(NOT_FORBIDDEN) and logits.isinf().any():
        return False
    target, ignore_index = random_target(generator, logits)
    flat = target.long().reshape(-1)
    counted, safe = flat != ignore_index, flat.masked_fill(flat == ignore_index, 0)
    rows = as_rows(logits.double())
    if not rows.gather(-1, safe.unsqueeze(-1)).squeeze(-1)[counted].isfinite().all():
        return False
    if either_class_is_kept(method, rows[counted], safe[counted]):
        return False
    options, arguments = random_options(generator, classes, ignore_index), method.all_loss_arguments
    finite = rows[counted].clamp(min=-1e30).numpy()
    losses = torch.zeros(len(rows), dtype=torch.float64)
    of_rows = by_rows(method.reference_loss, finite, safe[counted].numpy(), **arguments)
    losses[counted] = torch.from_numpy(of_rows)
    weights = torch.ones(len(rows), dtype=torch.float64)
    if options["weight"] is not None:
        weights = options["weight"].double()[safe]
    weights = weights.where(counted, 0.0)
    expected = reduced(losses * weights, weights, options["reduction"], target.shape)
    found = method.loss(logits, target, **options, **arguments)
    assert found.dtype == dtype
    assert_near(found, expected, dtype, tolerance=OF_THE_FAMILY)
    return True


def one_case_of_labels_of_the_family(generator):
    """A loss with several labels for each sample."""
    name = generator.choice(tuple(LABEL_LOSSES))
    loss, oracle, arguments = LABEL_LOSSES[name]
    classes = generator.choice((2, 3, 8, 20, 1000))
    dtype, reduction = generator.choice(FLOATS), generator.choice(REDUCTIONS)
    shape = (2, classes) if classes == 1000 else random_shape(generator, classes)
    logits = random_logits(generator, shape, dtype)
    if name == "bce" and logits.isinf().any():
        return False  # PyTorch's binary cross-entropy is NaN there
    ignore_index = generator.choice((-100, -100, -1, 2, 300))
    target = random_labels(generator, logits, ignore_index)
    rows, labels = as_rows(logits.double()), as_rows(target.double())
    known = labels != ignore_index
    if name in BY_LABEL:
        losses, counted = torch.zeros_like(rows), known
        of_known = oracle(rows[known].numpy(), labels[known].numpy(), **arguments)
        losses[known] = torch.from_numpy(of_known)
        if reduction == "none" and logits.dim() > 1:
            losses = losses.reshape(*without_classes(shape), classes).movedim(-1, 1)
    else:
        shape, counted = without_classes(shape), known.any(-1)
        losses = rows.sum(-1)
        for row, k in enumerate(known):
            losses[row] = oracle(rows[row][k].numpy(), labels[row][k].numpy(), **arguments)
    expected = reduced(losses, counted, reduction, shape)
    found = loss(logits, target, ignore_index=ignore_index, reduction=reduction, **arguments)
    assert found.dtype == dtype
    assert_near(found, expected, dtype)
    return True


CASES = {
    "class rows": (13_500, one_case_of_class_rows),
    "fused head": (5_000, one_case_of_the_fused_head),
    "several labels": (5_000, one_case_of_several_labels),
    "up to 100,000 classes": (60, partial(one_case_of_class_rows, wide=True)),
    "fused head of up to 100,000 classes": (60, partial(one_case_of_the_fused_head, wide=True)),
    "the family": (4_000, one_case_of_the_family),
    "several labels of the family": (2_000, one_case_of_labels_of_the_family),
    "class rows in one kernel": (200, one_case_of_class_rows),
    "fused head in one kernel": (100, one_case_of_the_fused_head),
}


@pytest.mark.parametrize(
    "share", [0.02, pytest.param(1.0, marks=pytest.mark.slow)], ids=["500", "20000"]
)
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.bug_report(
    "pytorch/pytorch#15508",
    "`ignore_index=255` is out of bounds as soon as the losses are not reduced.",
)
@pytest.mark.bug_report(
    "linkedin/Liger-Kernel#968", "Unreduced losses of a fused head: a wrong gradient, or one of 0."
)
@pytest.mark.bug_report(
    "linkedin/Liger-Kernel#1298",
    "A fused head multiplies all rows by the first row's upstream gradient.",
)
@pytest.mark.bug_report(
    "NVIDIA-NeMo/Automodel#3804",
    "A loss computed in chunks is as many times too large as there are chunks.",
)
def test_every_loss_agrees_with_the_float64_oracle_on_random_calls(
    kind, share, monkeypatch, record_property
):
    wanted, one_case = CASES[kind]
    wanted, compared, generator = round(wanted * share), 0, random.Random(20_000)
    if "one kernel" in kind:
        take_the_kernel_of_a_gpu(monkeypatch, row_loss, head_loss)
    few_logits = (0, 0 if "one kernel" in kind else 1 << 16)
    monkeypatch.setattr(head_loss, "FEW_LOGITS", 0)
    while compared < wanted:
        torch.manual_seed(generator.randrange(1 << 30))
        rows = generator.choice((2, 16))
        monkeypatch.setattr(head_loss, "workspace_rows", lambda *_, rows=rows: rows)
        monkeypatch.setattr(cross_entropy, "FEW_LOGITS", generator.choice(few_logits))
        # blocks of one row, or of all
        monkeypatch.setattr(row_loss, "CPU_BLOCK_PER_THREAD", generator.choice((1, 1 << 19)))
        compared += one_case(generator)
    record_property("random calls agree with the float64 oracle", compared)
