"""The learning rate of trainings of a few steps."""

from __future__ import annotations

import math

import pytest
import torch
from torch.optim.lr_scheduler import OneCycleLR

from as_lightning.benchmark.run.settings import SettingError
from as_lightning.benchmark.run.train import OneCycle

CYCLE = {"max_lr": 1.0, "pct_start": 0.1, "anneal_strategy": "linear", "cycle_momentum": False}


def rates(schedule: type[OneCycleLR], steps: float) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = schedule(optimizer, total_steps=steps, **CYCLE)
    taken = []
    for _ in range(int(steps)):
        taken.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return taken


@pytest.mark.parametrize("steps", range(1, 21))
def test_a_training_of_few_steps_reaches_the_full_rate_and_ends_near_zero(steps):
    taken = rates(OneCycle, steps)
    assert max(taken) == pytest.approx(1.0, abs=1e-5) or steps > 10
    assert max(taken) > 0.9
    assert taken[-1] < 1e-4 or steps == 1


def test_a_training_without_an_end_is_told_what_to_set():
    with pytest.raises(SettingError, match=r"set lr_scheduler=null or trainer.max_steps"):
        rates(OneCycle, math.inf)


@pytest.mark.parametrize("steps", [11, 12, 20, 100])
def test_where_there_are_steps_to_rise_in_the_rates_are_torchs(steps):
    assert rates(OneCycle, steps) == rates(OneCycleLR, steps)
