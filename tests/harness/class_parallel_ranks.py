"""Processes that share the classes of a head: ``python class_parallel_ranks.py FOLDER`` runs two,
three, then four. What one has seen in a scenario of :data:`PLAN` goes to
``FOLDER/<processes>/<scenario>-<rank>.pt``.
"""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import lightning.pytorch as pl
import torch
from harness.scripted_masking import quiet_trainer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn
from torch.distributed import get_world_size, is_initialized
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.utils.data import DataLoader

from as_lightning import ASSoftmaxMixin
from as_lightning.functional import as_cross_entropy, as_linear_cross_entropy
from as_lightning.functional.kernels import head_loss

SHARED = ("linear_heads", "sharded_logits")
PLAN = {
    2: (
        *SHARED,
        "refusals",
        "group_of_one",
        "hooks",
        "lightning_training_by_rows",
        "half_of_a_training",
    ),
    3: (*SHARED, "other_half_of_a_training"),
    4: ("lightning_training_on_a_grid",),
}


@dataclass(frozen=True)
class Case:
    """What a loss is called with; every field is part of the data's description."""

    classes: int = 24
    delta: float = 0.1
    reduction: str = "mean"
    bias: bool = True
    class_weight: bool = False
    ignored: bool = False
    dtype: torch.dtype = torch.float64
    rows: tuple[int, ...] = (40,)
    hidden: str = "plain"  # or a placement of hidden states and target: replicate, shard
    ties: bool = False
    empty_shard: bool = False  # the last classes have logit -inf
    autocast: bool = False  # to bfloat16

    @property
    def rounding(self) -> float:
        """The relative error of one operation."""
        return torch.finfo(torch.bfloat16 if self.autocast else self.dtype).eps


LINEAR_CASES = {
    "even": Case(),
    "uneven": Case(classes=25),
    "empty last shard": Case(classes=4, rows=(9,)),
    "fewer classes than processes": Case(classes=2, rows=(9,)),
    "plain cross-entropy": Case(delta=1.0),
    "wide margin": Case(delta=0.6, classes=25),
    "ties": Case(delta=0.0, ties=True),
    "classes out of use": Case(empty_shard=True),
    "sum": Case(reduction="sum", classes=25, bias=False),
    "each row": Case(reduction="none", classes=25, class_weight=True, ignored=True),
    "class weights": Case(class_weight=True, classes=25),
    "ignored": Case(ignored=True, rows=(5, 8)),
    "replicated": Case(hidden="replicate", classes=25),
    "rows sharded": Case(hidden="shard", classes=25, rows=(41,), ignored=True, class_weight=True),
    "rows sharded, each": Case(hidden="shard", reduction="none", rows=(5, 8)),
    "float32": Case(dtype=torch.float32, classes=25),
    "bfloat16": Case(dtype=torch.bfloat16, classes=25),
    "autocast": Case(dtype=torch.float32, autocast=True, classes=25),
    "float16": Case(dtype=torch.float16, hidden="shard"),
}
LOGITS_CASES = {
    "even": Case(),
    "uneven": Case(classes=25),
    "one row": Case(rows=()),
    "tokens": Case(rows=(6, 5), classes=25, ignored=True),
    "plain cross-entropy": Case(delta=1.0, classes=25),
    "ties": Case(delta=0.0, ties=True),
    "each row": Case(reduction="none", classes=25, class_weight=True, ignored=True),
    "class weights": Case(class_weight=True, reduction="sum"),
    "bfloat16": Case(dtype=torch.bfloat16, classes=25),
}
TIED = {"lower": 1, "upper": -2}  # one class of the first process, one of the last


@dataclass
class Operands:
    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    target: Tensor
    class_weight: Tensor | None
    upstream: Tensor

    @property
    def logits(self) -> Tensor:
        """Class dimension 1, as ``F.cross_entropy`` takes it."""
        logits = torch.nn.functional.linear(self.hidden, self.weight, self.bias)
        return logits if logits.dim() < 3 else logits.movedim(-1, 1)


def operands(case: Case, features: int = 6) -> Operands:
    """Hidden states with rows of all three kinds: unmasked, mixed and fully masked."""
    generator = torch.Generator().manual_seed(7)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    weight, bias = normal(case.classes, features), normal(case.classes)
    target = torch.randint(case.classes, case.rows, generator=generator)
    strength = torch.linspace(0, 3, max(target.numel(), 1), dtype=torch.float64).reshape(
        *case.rows, 1
    )
    hidden = normal(*case.rows, features) + strength * weight[target]
    if case.ties:
        # the target and one other class have the same logit, exactly: the numbers are small
        # integers
        weight, bias, hidden = weight.round(), bias.round(), hidden.round()
        weight[TIED["upper"]], bias[TIED["upper"]] = weight[TIED["lower"]], bias[TIED["lower"]]
        target = torch.where(target % 2 == 0, TIED["lower"], case.classes + TIED["upper"])
    if case.empty_shard:
        half = case.classes // 2
        bias[half:] = -torch.inf
        target = target % half
    if case.ignored:
        target[..., ::4] = -100
    class_weight = torch.rand(case.classes, generator=generator, dtype=torch.float64) + 0.5
    upstream = (
        normal(*case.rows) if case.reduction == "none" else torch.tensor(1.7, dtype=torch.float64)
    )
    return Operands(
        hidden.to(case.dtype),
        weight.to(case.dtype),
        bias.to(case.dtype) if case.bias else None,
        target,
        class_weight.to(case.dtype) if case.class_weight else None,
        upstream.to(case.dtype),
    )


def class_mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (get_world_size(),), mesh_dim_names=("classes",))


def whole(x: Tensor | None) -> Tensor | None:
    return x.full_tensor() if isinstance(x, DTensor) else x


def placement_of(x: Tensor | None) -> str:
    return str(x.placements[0]) if isinstance(x, DTensor) else "plain"


def linear_head(case: Case, mesh: DeviceMesh) -> dict[str, Any]:
    """The loss, counts and gradients of one case, whole."""
    given = operands(case)
    weight = distribute_tensor(given.weight, mesh, [Shard(0)]).requires_grad_()
    bias = (
        None
        if given.bias is None
        else distribute_tensor(given.bias, mesh, [Shard(0)]).requires_grad_()
    )
    hidden, target = given.hidden, given.target
    if case.hidden != "plain":
        placement = Shard(0) if case.hidden == "shard" else Replicate()
        hidden, target = (distribute_tensor(x, mesh, [placement]) for x in (hidden, target))
    hidden.requires_grad_()
    # a small workspace, so that there are several chunks
    with (
        mock.patch.object(head_loss, "CPU_WORKSPACE", 1),
        torch.autocast("cpu", enabled=case.autocast),
    ):
        settings: dict[str, Any] = {"weight": given.class_weight, "reduction": case.reduction}
        loss, counts = as_linear_cross_entropy(
            hidden, weight, target, case.delta, bias=bias, return_counts=True, **settings
        )
    loss.backward(given.upstream)
    return {
        "loss": loss.detach(),
        "counts": counts,
        "hidden": whole(hidden.grad),
        "weight": whole(weight.grad),
        "bias": None if bias is None else whole(bias.grad),
        "placements": [placement_of(x) for x in (hidden.grad, weight.grad)],
    }


def linear_heads(folder: Path) -> dict[str, Any]:
    mesh = class_mesh()
    return {name: linear_head(case, mesh) for name, case in LINEAR_CASES.items()}


def sharded_logits(folder: Path) -> dict[str, Any]:
    mesh = class_mesh()
    seen = {}
    for name, case in LOGITS_CASES.items():
        given = operands(case)
        logits = distribute_tensor(
            given.logits, mesh, [Shard(0 if given.logits.dim() == 1 else 1)]
        ).requires_grad_()
        loss, counts = as_cross_entropy(
            logits,
            given.target,
            case.delta,
            weight=given.class_weight,
            reduction=case.reduction,
            return_counts=True,
        )
        loss.backward(given.upstream)
        seen[name] = {
            "loss": loss.detach(),
            "counts": counts,
            "logits": whole(logits.grad),
            "placements": [placement_of(logits.grad)],
        }
    return seen


def group_of_one(folder: Path) -> dict[str, Any]:
    """Every process holds all classes of a head of its own."""
    mesh = init_device_mesh("cpu", (get_world_size(), 1), mesh_dim_names=("data", "classes"))[
        "classes"
    ]
    return linear_head(LINEAR_CASES["uneven"], mesh)


def error_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    try:
        function(*args, **kwargs)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def twice_differentiated(loss: Callable[..., Tensor], *operands: Tensor) -> None:
    leaves = [x.detach().requires_grad_() for x in operands if x.is_floating_point()]
    torch.autograd.grad(loss(*leaves, operands[-1]), leaves, create_graph=True)


def refusals(folder: Path) -> dict[str, str]:
    mesh = class_mesh()
    rank, count = mesh.get_local_rank(), mesh.size()
    given = operands(Case())

    def place(x: Tensor, placement: Any, where: DeviceMesh = mesh) -> DTensor:
        return distribute_tensor(x, where, [placement] * where.ndim)

    weight = place(given.weight, Shard(0))
    hidden, target = given.hidden, given.target
    grid = init_device_mesh("cpu", (1, count), mesh_dim_names=("data", "classes"))
    loss = as_linear_cross_entropy
    held = [8, 9, 13][:count]
    by_hand = DTensor.from_local(
        given.weight.new_zeros(held[rank], 6),
        mesh,
        [Shard(0)],
        shape=torch.Size((sum(held), 6)),
        stride=(6, 1),
    )
    return {
        "weight sharded by features": error_of(loss, hidden, place(given.weight, Shard(1)), target),
        "weight replicated": error_of(loss, hidden, place(given.weight, Replicate()), target),
        "two dimensions": error_of(loss, hidden, place(given.weight, Shard(0), grid), target),
        "uneven by hand": error_of(loss, hidden, by_hand, target % 17),
        "plain bias": error_of(loss, hidden, weight, target, bias=given.bias),
        "bias replicated": error_of(
            loss, hidden, weight, target, bias=place(given.bias, Replicate())
        ),
        "plain weight": error_of(loss, place(hidden, Shard(0)), given.weight, target),
        "another mesh": error_of(loss, place(hidden, Replicate(), grid), weight, target),
        "features": error_of(loss, hidden[:, :5], weight, target),
        "devices": error_of(loss, hidden.to("meta"), weight, target),
        "a target too high": error_of(loss, hidden, weight, target + 24),
        # with one sum of indices times places
        "targets that differ": error_of(
            loss, hidden[:2], weight, target.new_tensor([0, 1] if rank else [2, 0])
        ),
        "targets of other lengths": error_of(loss, hidden[: 2 + rank], weight, target[: 2 + rank]),
        "logits replicated": error_of(as_cross_entropy, place(given.logits, Replicate()), target),
        "plain logits": error_of(as_cross_entropy, given.logits, place(target, Replicate())),
        "a second derivative of logits": error_of(
            twice_differentiated, as_cross_entropy, place(given.logits, Shard(1)), target
        ),
        "a second derivative of a head": error_of(
            twice_differentiated, loss, hidden, weight, target
        ),
        "a transform of a head": error_of(torch.func.grad(loss), hidden, weight, target),
        "a tangent of hidden states": error_of(
            lambda: torch.func.jvp(lambda x: loss(x, weight, target), (hidden,), (hidden,))
        ),
        "a transform of logits": error_of(
            torch.func.grad(as_cross_entropy), place(given.logits, Shard(1)), target
        ),
    }


HOOKS = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
)


def hooks(folder: Path) -> dict[str, str]:
    """What the loss of the mixin says of a head with the hooks of a parallel style alone, and with
    one of its own.
    """
    hidden, target = torch.randn(4, 8, dtype=torch.float64), torch.arange(4)
    hidden, target = (distribute_tensor(x, class_mesh(), [Replicate()]) for x in (hidden, target))
    seen = {}
    for name in ("none of its own", *HOOKS):
        module = WideClassifier()
        parallelize_module(module.head, class_mesh(), ColwiseParallel())
        if name in HOOKS:
            getattr(module.head, name)(lambda *args: None)
        seen[name] = error_of(module.as_softmax_head_loss, hidden, module.head, target)
    return seen


FEATURES, CLASSES, BATCHES, BATCH, EPOCHS = 5, 13, 3, 12, 2


def training_data() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(BATCHES, BATCH, FEATURES, generator=generator, dtype=torch.float64)
    y = torch.randint(CLASSES, (BATCHES, BATCH), generator=generator)
    return list(zip(x, y, strict=True))


class WideClassifier(ASSoftmaxMixin, pl.LightningModule):
    """A body and a wide head, in float64; ``configure_model`` shards the head, if the strategy has
    a mesh.
    """

    def __init__(self) -> None:
        super().__init__(delta=0.2)
        with torch.random.fork_rng():
            torch.manual_seed(1)
            self.body = nn.Sequential(nn.Linear(FEATURES, 8, dtype=torch.float64), nn.Tanh())
            self.head = nn.Linear(8, CLASSES, dtype=torch.float64)
        self.losses: list[Tensor] = []
        self.counts: list[Tensor] = []

    def configure_model(self) -> None:
        if is_initialized():
            parallelize_module(self.head, self.device_mesh["tensor_parallel"], ColwiseParallel())

    def rows(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The hidden states and targets of this process."""
        return self.body(batch[0]), batch[1]

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        hidden, target = self.rows(batch)
        loss = self.as_softmax_head_loss(hidden, self.head, target)
        self.losses.append(loss.detach())
        self.counts.append(self.masking_counter.open_sums.counts.clone())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.05)


class OwnRows(WideClassifier):
    """Each process has rows of its own, a body that is sharded by FSDP and a share of
    the classes.
    """

    def configure_model(self) -> None:
        mesh = self.device_mesh["data_parallel"]
        parallelize_module(self.head, mesh, ColwiseParallel())
        # the loss is that of all rows: the gradients of the processes are to be added up, not
        # averaged
        fully_shard(self.body, mesh=mesh).set_gradient_divide_factor(1.0)

    def rows(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        mesh = self.head.weight.device_mesh
        x, y = (part.chunk(mesh.size())[mesh.get_local_rank()] for part in batch)
        hidden, target = (DTensor.from_local(part, mesh, [Shard(0)]) for part in (self.body(x), y))
        return hidden, target


class Grid(WideClassifier):
    """Two groups of two: the processes of a group share the classes, and each group has rows of its
    own.
    """

    def rows(self, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        groups = self.device_mesh["data_parallel"]
        x, y = (part.chunk(groups.size())[groups.get_local_rank()] for part in batch)
        return super().rows((x, y))

    def on_after_backward(self) -> None:
        groups = self.device_mesh["data_parallel"]
        for parameter in self.parameters():
            gradient = (
                parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
            )
            torch.distributed.all_reduce(gradient, group=groups.get_group())
            gradient /= groups.size()


def train(
    module: WideClassifier, *, epochs: int = EPOCHS, resume: Path | None = None, **settings: Any
) -> pl.Trainer:
    trainer = quiet_trainer(max_epochs=epochs, use_distributed_sampler=False, **settings)
    trainer.fit(module, DataLoader(training_data(), batch_size=None), ckpt_path=resume)
    return trainer


def trained(module: WideClassifier, save: Path | None = None, **settings: Any) -> dict[str, Any]:
    sizes = (get_world_size(), 1) if isinstance(module, OwnRows) else (1, get_world_size())
    if isinstance(module, Grid):
        sizes = (2, get_world_size() // 2)
    trainer = train(
        module, devices=get_world_size(), strategy=ModelParallelStrategy(*sizes), **settings
    )
    if save is not None:
        trainer.save_checkpoint(save)
    return {
        "losses": torch.stack(module.losses),
        "counts": torch.stack(module.counts),
        "weights": {name: whole(x.detach()) for name, x in module.state_dict().items()},
        "placement": placement_of(module.head.weight),
    }


TRAININGS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "lightning_training_by_rows": lambda folder: trained(OwnRows()),
    "lightning_training_on_a_grid": lambda folder: trained(Grid()),
    "half_of_a_training": lambda folder: trained(WideClassifier(), epochs=1, save=folder / "half"),
    "other_half_of_a_training": lambda folder: trained(WideClassifier(), resume=folder / "half"),
}


def run_rank(rank: int, count: int, folder: Path) -> None:
    """Run the scenarios as one of ``count`` processes."""
    os.environ |= {
        "LOCAL_RANK": str(rank),
        "RANK": str(rank),
        "NODE_RANK": "0",
        "WORLD_SIZE": str(count),
    }
    torch.distributed.init_process_group(
        "gloo", f"file://{folder}/store-{count}", rank=rank, world_size=count
    )
    for scenario in PLAN[count]:
        try:
            seen = (globals() | TRAININGS)[scenario](folder)
        except Exception:
            seen = {"error": traceback.format_exc()}
        torch.save(seen, folder / str(count) / f"{scenario}-{rank}.pt")
    torch.distributed.barrier()
    os._exit(0)  # torch 2.6 may wait in destroy_process_group for ever


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for count in PLAN:
        (folder / str(count)).mkdir()
        context = multiprocessing.get_context("fork")
        ranks = [
            context.Process(target=run_rank, args=(rank, count, folder)) for rank in range(count)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise SystemExit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
