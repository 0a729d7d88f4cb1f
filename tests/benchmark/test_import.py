"""What a run of the app loads."""

from __future__ import annotations

from harness.loaded_packages import loaded_beside_lightning


def test_digits_and_their_network_need_no_package_of_another_modality(tmp_path):
    found = loaded_beside_lightning(
        "from as_lightning.benchmark.data.digits import Digits\n"
        "from as_lightning.benchmark.encoders.from_scratch import SmallCNN\n"
        "from as_lightning.benchmark.tasks.classifier import ASSoftmaxClassifier",
        tmp_path,
    )
    assert found <= {"sklearn", "scipy.stats", "seqeval"}
