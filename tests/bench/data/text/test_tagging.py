"""Token-level data: WNUT-17's real files, words against pieces, and CoNLL's columns."""

import pytest
import torch
from harness.data_settings import TEXT, WNUT17
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from as_lightning.bench.data.text.conll import TaggedSentence
from as_lightning.bench.data.text.data_module import IGNORED
from as_lightning.bench.data.text.tagging import Conll

SPLITS = ("train", "validation", "test")


def small(*sentences: TaggedSentence, **arguments) -> Conll:
    """A tagging data module of given sentences, the same in every split."""

    class Small(Conll):
        def read_splits(self):
            return dict.fromkeys(SPLITS, sentences)

    data = Small(None, None, None, **(TEXT | arguments))
    data.setup()
    return data


@pytest.fixture(scope="module")
def wnut(real_data) -> Conll:
    data = Conll(*WNUT17, data_dir=real_data, **(TEXT | {"max_length": 256, "lowercase": False}))
    data.setup()
    return data


def test_wnut17_has_its_published_sizes_and_tags(wnut):
    assert [len(wnut.splits[split]) for split in SPLITS] == [3_394, 1_009, 1_287]
    kinds = ("corporation", "creative-work", "group", "location", "person", "product")
    assert wnut.class_names == sorted(
        [f"{place}-{kind}" for place in "BI" for kind in kinds] + ["O"]
    )


def test_a_target_stands_on_the_first_piece_of_its_word(wnut):
    rows = wnut.read_splits()["test"]
    for row, ids, targets in zip(
        rows, wnut.splits["test"].inputs, wnut.splits["test"].targets, strict=True
    ):
        starts = [place for place, tag in enumerate(targets.tolist()) if tag != IGNORED]
        assert starts[0] == 0
        for word, start, end in zip(row.words, starts, [*starts[1:], len(ids)], strict=True):
            pieces = [wnut.tokenizer.id_to_token(token) for token in ids[start:end].tolist()]
            if "[UNK]" not in pieces and word.isascii():
                assert "".join(pieces) == word


def test_a_batch_ignores_padding_and_gives_the_tags_of_the_file_back(wnut):
    rows = wnut.read_splits()["validation"]
    loader = wnut.val_dataloader()
    lengths = set()
    for indices, (token_ids, targets) in zip(loader.batch_sampler, loader, strict=True):
        assert token_ids.shape == targets.shape
        assert token_ids.dtype == targets.dtype == torch.int64
        assert bool((targets[token_ids == wnut.padding_id] == IGNORED).all())
        lengths.add(token_ids.size(1))
        for index, row in zip(indices, targets.tolist(), strict=True):
            assert tuple(wnut.class_names[tag] for tag in row if tag != IGNORED) == rows[index].tags
    assert len(lengths) > 5  # padded to the longest of a batch, and not of the split


GONE = "\u200d"  # a zero-width joiner, which the normaliser takes for a control character


@pytest.mark.parametrize(
    "words",
    [(GONE, "a", "b"), ("a", GONE, "b"), ("a", "b", GONE), (GONE, *["a"] * 6)],
    ids=["0", "1", "2", "cut"],
)
def test_a_word_that_the_normaliser_leaves_nothing_of_keeps_its_place(words):
    tags = tuple("B-x" if word == GONE else "O" for word in words)
    data = small(TaggedSentence(words, tags), max_length=4)
    ids, targets = data.splits["train"][0]
    assert tuple(data.class_names[tag] for tag in targets.tolist() if tag != IGNORED) == tags[:4]
    assert len(ids) == len(targets)


PARTS = [pre_tokenizers.Digits(), ByteLevel(add_prefix_space=False)]


@pytest.mark.parametrize("pre_tokenizer", [PARTS[1], pre_tokenizers.Sequence(PARTS)])
def test_a_byte_level_tokenizer_takes_each_word_for_one_of_a_sentence(tmp_path, pre_tokenizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<pad>"], initial_alphabet=ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([" the cat sat1"] * 9, trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>").save_pretrained(tmp_path)
    data = small(TaggedSentence(("the", "cat", "sat1"), ("O", "B-x", "O")), tokenizer=str(tmp_path))
    tokens = [data.tokenizer.id_to_token(number) for number in data.splits["train"][0][0].tolist()]
    assert tokens == tokenizer.encode(" the cat sat1").tokens


def test_words_past_max_length_are_left_out_and_counted():
    rows = [
        TaggedSentence(("word",) * length, ("B-x", *["O"] * (length - 1))) for length in (3, 5, 9)
    ]
    data = small(*rows, max_length=4)
    assert [len(ids) for ids in data.splits["train"].inputs] == [3, 4, 4]
    cut = [one for one in data.readings if "data.max_length=4" in one.what]
    assert [(one.count, one.total) for one in cut] == [(6, 17)] * 3


CONLL2003 = (
    "-DOCSTART- -X- -X- O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\r\n\n\nPeter NNP B-NP B-PER\n"
)


@pytest.mark.parametrize(
    ("content", "settings", "expected"),
    [
        (CONLL2003, {}, [(("EU", "rejects"), ("B-ORG", "O")), (("Peter",), ("B-PER",))]),
        (
            CONLL2003,
            {"tag_column": 2},
            [(("EU", "rejects"), ("B-NP", "B-VP")), (("Peter",), ("B-NP",))],
        ),
        ("New York\tB-loc\n", {}, [(("New York",), ("B-loc",))]),  # tabs part the columns
        # Wide spaces do not.
        ("10\xa0000 CD B-n\na\u3000b  NN O \n", {}, [(("10\xa0000", "a\u3000b"), ("B-n", "O"))]),
    ],
)
def test_conll_reads_the_columns_it_is_told(tmp_path, content, settings, expected):
    for split in SPLITS:
        (tmp_path / f"{split}.txt").write_bytes(content.encode())
    paths = ("train.txt", tmp_path / "validation.txt", "test.txt")
    assert Conll(*paths, data_dir=tmp_path, **settings, **TEXT).read_splits() == dict.fromkeys(
        SPLITS, expected
    )
