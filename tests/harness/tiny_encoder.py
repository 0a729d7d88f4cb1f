"""Tiny encoders of Hugging Face with random weights, each in a folder with a tokenizer; nothing is
downloaded.
"""

import torch
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

from as_lightning.bench.data.text.data_module import fit_tokenizer

VOCAB, LAYERS = 300, 3
WIDE = {
    "hidden_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def model_of(kind):
    torch.manual_seed(0)
    if kind == "distilbert":
        return DistilBertModel(
            DistilBertConfig(vocab_size=VOCAB, dim=16, n_layers=LAYERS, n_heads=2, hidden_dim=32)
        )
    if kind == "roberta":
        return RobertaModel(
            RobertaConfig(vocab_size=VOCAB, pad_token_id=0, max_position_embeddings=80, **WIDE)
        )
    if kind == "modernbert":
        return ModernBertModel(ModernBertConfig(vocab_size=VOCAB, pad_token_id=0, **WIDE))
    return BertModel(BertConfig(vocab_size=VOCAB, **WIDE))


def save_encoder(folder, texts, kind="bert"):
    """Write model and tokenizer, and give the folder's name."""
    model_of(kind).save_pretrained(folder)
    tokenizer = fit_tokenizer(texts, VOCAB)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(folder)
    return str(folder)
