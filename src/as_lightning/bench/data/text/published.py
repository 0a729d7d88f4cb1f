"""Published texts: their files' addresses and checksums, and how the files are read."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from as_lightning.bench.data.files import RemoteFile
from as_lightning.bench.data.tables import Sentence
from as_lightning.bench.data.text.data_module import TaggedSentence, TextDataModule
from as_lightning.bench.data.text.tagging import TaggingDataModule, read_conll


def remote_files(home: str, **files: tuple[str, str]) -> dict[str, RemoteFile]:
    """Files by part, from name and SHA-256; an address is ``home`` and what follows the name's
    first underscore.
    """
    return {
        part: RemoteFile(name, home + name.partition("_")[2], checksum)
        for part, (name, checksum) in files.items()
    }


class SST5(TextDataModule):
    """Stanford Sentiment Treebank, sentences of 5 classes from very negative to very positive:
    8,544 / 1,101 / 2,210.

    Source: Socher et al., "Recursive Deep Models for Semantic Compositionality Over a Sentiment
    Treebank", EMNLP 2013; the files are those of ``github.com/prrao87/fine-grained-sentiment``. For
    research use.
    """

    FILES: ClassVar[dict[str, RemoteFile]] = remote_files(
        "https://raw.githubusercontent.com/prrao87/fine-grained-sentiment/master/data/sst/sst_",
        train=(
            "sst5_train.txt",
            "1e30d2895f7b1569f9faa42a5e7b0da03dab41439cff08c65b6eb11c8f9ba707",
        ),
        validation=(
            "sst5_dev.txt",
            "ba0d66e70e51daca3b371a5b3da3d0d0534f03d935d0570fb43fa3ae117bd773",
        ),
        test=("sst5_test.txt", "ae78588874d7653eb416992014ccc9ead5d3540e3f83158186202c9a5bf9461b"),
    )

    def read_splits(self) -> dict[str, list[Sentence]]:
        splits: dict[str, list[Sentence]] = {}
        for split, path in self.files().items():
            splits[split] = []
            for line in path.read_text(encoding="utf-8").splitlines():
                label, _, text = line.partition("\t")
                splits[split].append(Sentence(text.strip(), label.removeprefix("__label__")))
        return splits


class Clinc150(TextDataModule):
    """CLINC150 (full): 150 intents and out-of-scope, 15,100 / 3,100 / 5,500 queries, CC BY 3.0.

    Source: Larson et al., "An Evaluation Dataset for Intent Classification and Out-of-Scope
    Prediction", EMNLP 2019; ``github.com/clinc/oos-eval``.

    ``out_of_scope`` keeps the queries that have none of the intents, as a class of their own: 100
    of the 15,100 for training, 1,000 of the 5,500 for the test.
    """

    FILES: ClassVar[dict[str, RemoteFile]] = remote_files(
        "https://raw.githubusercontent.com/clinc/oos-eval/master/data/data_full.json",
        all=("clinc150.json", "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0"),
    )

    def __init__(self, out_of_scope: bool = True, **text: Any) -> None:
        super().__init__(**text)
        self.out_of_scope = out_of_scope

    def read_splits(self) -> dict[str, list[Sentence]]:
        content = json.loads(self.files()["all"].read_text(encoding="utf-8"))
        splits = {}
        for split, part in (("train", "train"), ("validation", "val"), ("test", "test")):
            rows = content[part]  # lists of [text, label]
            if self.out_of_scope:
                rows = rows + content[f"oos_{part}"]
            splits[split] = [Sentence(*row) for row in rows]
        return splits


class GoEmotions(TextDataModule):
    """GoEmotions: comments with any of 27 emotions or neutral, 43,410 / 5,426 / 5,427, several
    labels a comment.

    Targets are ``(N, 28)`` ``int64`` in {0, 1}.

    Source: Demszky et al., "GoEmotions: A Dataset of Fine-Grained Emotions", ACL 2020;
    ``github.com/google-research/google-research``, Apache 2.0.
    """

    task = "multilabel"
    FILES: ClassVar[dict[str, RemoteFile]] = remote_files(
        "https://raw.githubusercontent.com/google-research/google-research/master/goemotions/data/",
        train=(
            "goemotions_train.tsv",
            "1c254a142be5c00e80d819b9ae1bbd36d94b2eeb8f4b1271846508d57e57d9c5",
        ),
        validation=(
            "goemotions_dev.tsv",
            "575489c079c9de1097062a01738f998590d6b7ead66dd1c9fd1d2ba01fd8bc62",
        ),
        test=(
            "goemotions_test.tsv",
            "0587b2dd8b27b97352adbfc3fb083d46005c8946657fdc2b1ca8b1cc7f1f8be4",
        ),
        labels=(
            "goemotions_labels.txt",
            "45c3ef86782d2a4d7fedcd6d8c111aa0d0e94720689bd164fac94fefb4495a89",
        ),
    )
    FILES["labels"] = FILES["labels"]._replace(
        url=FILES["train"].url.replace("train.tsv", "emotions.txt")
    )

    def read_splits(self) -> dict[str, list[Sentence]]:
        paths = self.files()
        self.class_names = paths.pop("labels").read_text(encoding="utf-8").split()
        splits: dict[str, list[Sentence]] = {}
        for split, path in paths.items():
            splits[split] = []
            for line in path.read_text(encoding="utf-8").strip("\n").split("\n"):
                text, labels, _ = line.split("\t")  # labels: indices with commas between them
                names = tuple(self.class_names[int(label)] for label in labels.split(","))
                splits[split].append(Sentence(text, names))
        return splits


class WNUT17(TaggingDataModule):
    """WNUT-17, emerging entities of 6 types in social media: 3,394 / 1,009 / 1,287 sentences, 13
    tags.

    Source: Derczynski et al., "Results of the WNUT2017 Shared Task on Novel and Emerging Entity
    Recognition", W-NUT 2017; ``github.com/leondz/emerging_entities_17``, CC BY 4.0.
    """

    FILES: ClassVar[dict[str, RemoteFile]] = remote_files(
        "https://raw.githubusercontent.com/leondz/emerging_entities_17/master/",
        train=(
            "wnut17_wnut17train.conll",
            "731820e13f71af324c6b55a1575ec2ce59fbaa2a0806f8f0400b98d56cd6a7a5",
        ),
        validation=(
            "wnut17_emerging.dev.conll",
            "e053b752b8155113ca66e7db08af5f2f5f43ab993694e4774f1ec5bad42312d8",
        ),
        test=(
            "wnut17_emerging.test.annotated",
            "2aa79b764e56ec9264a1b30fdd9b70195bd00ff400b62edd8f399d5f13c178f0",
        ),
    )

    def read_splits(self) -> dict[str, list[TaggedSentence]]:
        return {split: read_conll(path) for split, path in self.files().items()}
