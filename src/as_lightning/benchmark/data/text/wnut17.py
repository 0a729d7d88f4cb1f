"""WNUT-17: which words of a message are names?"""

from __future__ import annotations

from typing import ClassVar

from as_lightning.benchmark.data.download import RemoteFile
from as_lightning.benchmark.data.text.data_module import TaggedSentence
from as_lightning.benchmark.data.text.tagging import TaggingDataModule, read_conll


class WNUT17(TaggingDataModule):
    """WNUT-17, emerging entities of 6 types in social media: 3,394 / 1,009 / 1,287 sentences, 13 tags.

    Source: Derczynski et al., "Results of the WNUT2017 Shared Task on Novel and Emerging Entity Recognition", W-NUT
    2017; ``github.com/leondz/emerging_entities_17``, CC BY 4.0.
    """

    HOME = "https://raw.githubusercontent.com/leondz/emerging_entities_17/master"
    FILES: ClassVar[dict[str, RemoteFile]] = {
        "train": RemoteFile(
            "wnut17_wnut17train.conll",
            f"{HOME}/wnut17train.conll",
            "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5",
        ),
        "validation": RemoteFile(
            "wnut17_emerging.dev.conll",
            f"{HOME}/emerging.dev.conll",
            "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8",
        ),
        "test": RemoteFile(
            "wnut17_emerging.test.annotated",
            f"{HOME}/emerging.test.annotated",
            "2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0",
        ),
    }

    def read_splits(self) -> dict[str, list[TaggedSentence]]:
        return {split: list(read_conll(path)) for split, path in self.fetch_files().items()}
