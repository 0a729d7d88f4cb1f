"""The recipe for the Trainer of transformers, as its page has it."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs/hugging_face.md"


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the page's code leaves, after its training."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="the Trainer of transformers needs accelerate")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    (code,) = re.findall(
        r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    torch.manual_seed(10)  # a network that has more to learn: a loss that is not 0
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_the_recipe_trains_masks_and_accumulates_as_one_large_batch(recipe: dict[str, Any]) -> None:
    from transformers import Trainer, TrainingArguments

    rate = recipe["masked"]
    trainer = recipe["trainer"]
    logged = trainer.evaluate()["eval_loss"]
    assert int(rate.counts[1]) == 5 * 64  # each sample of each epoch, and none of an evaluation
    assert 0 < float(rate.compute()) < 1
    inputs = torch.stack([text["input_ids"] for text in recipe["examples"]])
    logits = trainer.model.eval()(input_ids=inputs).logits
    labels = torch.tensor([text["labels"] for text in recipe["examples"]])
    assert logged == pytest.approx(
        float(recipe["as_cross_entropy"](logits, labels, 0.5).detach()), rel=1e-4, abs=1e-6
    )

    weights = []
    settings: dict[str, Any] = {
        "optim": "sgd",
        "learning_rate": 0.5,
        "report_to": "none",
        "use_cpu": True,
    }
    settings |= {"max_steps": 8, "seed": 1}
    recipe["config"].hidden_dropout_prob = recipe["config"].attention_probs_dropout_prob = 0.0
    fresh = recipe["AutoModelForSequenceClassification"].from_config(recipe["config"]).double()
    for accumulated in (1, 4):
        model = copy.deepcopy(fresh)
        sizes = {
            "gradient_accumulation_steps": accumulated,
            "per_device_train_batch_size": 16 // accumulated,
        }
        arguments = TrainingArguments("runs", **settings, **sizes)
        train_set = recipe["examples"]
        Trainer(
            model, arguments, train_dataset=train_set, compute_loss_func=recipe["as_softmax"]
        ).train()
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-12)


def test_the_trainer_counts_every_label_of_several_as_the_page_says(recipe: dict[str, Any]) -> None:
    from transformers import Trainer, TrainingArguments

    from as_lightning.functional import multilabel_as_cross_entropy

    assert "num_items_in_batch / labels.size(1)" in PAGE.read_text(encoding="utf-8")
    samples = []

    def several(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        samples.append(float(num_items_in_batch / labels.size(1)))
        return multilabel_as_cross_entropy(outputs.logits, labels, reduction="sum") / samples[-1]

    texts = [
        {"input_ids": text["input_ids"], "labels": torch.tensor([1.0, 0.0, 1.0])}
        for text in recipe["examples"]
    ]
    recipe["config"].problem_type = "multi_label_classification"
    model = recipe["AutoModelForSequenceClassification"].from_config(recipe["config"])
    sizes = {"max_steps": 1, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    arguments = TrainingArguments("runs", report_to="none", use_cpu=True, **sizes)
    Trainer(model, arguments, train_dataset=texts, compute_loss_func=several).train()
    assert samples == [8.0, 8.0]
