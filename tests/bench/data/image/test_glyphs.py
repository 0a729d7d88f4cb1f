import tarfile

import numpy as np
import torch
from harness.made_files import encoded

from as_lightning.bench.data.files import RemoteFile
from as_lightning.bench.data.image.glyphs import Glyphs


def test_a_class_is_a_distinct_picture_training_copies_change_and_the_others_are_the_same_in_every_run(
    tmp_path,
):
    shades = np.random.default_rng(0).integers(0, 256, (3, 24, 24), dtype=np.uint8)
    with tarfile.open(tmp_path / "data.tar.xz", "w:xz") as archive:
        for name, row in {"4.png": 2, "3.png": 0, "2.PNG": 1, "1.png": 0}.items():
            (tmp_path / name).write_bytes(encoded(shades[row]))
            archive.add(tmp_path / name, f"pixmaps/{name}")
    parts = ("control.tar.xz", b"odd\n"), ("data.tar.xz", (tmp_path / "data.tar.xz").read_bytes())
    members = [
        f"{name:48}{size:<10}`\n".encode() + part
        for name, part in parts
        for size in [len(part.rstrip(b"\n"))]
    ]
    (tmp_path / "made.deb").write_bytes(b"!<arch>\n" + b"".join(members))
    small = type("Small", (Glyphs,), {"FILES": {"pictures": RemoteFile("made.deb", "", None)}})
    data, again = (small(batch_size=2, data_dir=tmp_path) for _ in range(2))
    data.setup(), again.setup()
    assert data.class_names == ["1", "2", "4"]
    assert torch.equal(data.splits["train"].inputs[:, 0], 255 - torch.from_numpy(shades))
    assert all(
        torch.equal(data.splits[split].inputs, again.splits[split].inputs)
        for split in ("validation", "test")
    )
    batch = next(iter(data.train_dataloader()))
    for training in (True, False):
        data.trainer = type("Trainer", (), {"training": training})
        copies, others = (data.on_after_batch_transfer(batch, 0)[0] for _ in range(2))
        assert torch.equal(copies, others) != training
        assert 0 <= copies.min() < copies.max() <= 1
