"""Models that nobody here wrote: small, randomly initialised ones of the transformers library.

This group runs where transformers is installed; the checks install it.
"""

import pytest
import torch
import torch.nn.functional as F

from tacit.clipping import Flat
from tacit.core.errors import UnsupportedError
from tacit.gradients import clipped_grad
from tacit.models import replace_batchnorm

transformers = pytest.importorskip("transformers")

EXAMPLES = 3
TEXT = {"vocab_size": 37, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def classify(model, inputs, labels):
    return F.cross_entropy(model(**inputs).logits.double(), labels, reduction="none")


def predict_next(model, inputs, labels):
    logits = model(**inputs).logits
    losses = F.cross_entropy(logits.flatten(0, 1).double(), labels.flatten(), reduction="none")
    return losses.view(labels.shape).sum(1)


def words(length=6):
    return {"input_ids": torch.randint(1, 37, (EXAMPLES, length)), "attention_mask": _attention_mask(length)}


def _attention_mask(length):
    mask = torch.ones(EXAMPLES, length, dtype=torch.long)
    mask[1, -2:] = 0
    return mask


def pixels(size=32):
    return {"pixel_values": torch.randn(EXAMPLES, 3, size, size, dtype=torch.float64)}


def classes():
    return torch.randint(0, 4, (EXAMPLES,))


def bert():
    config = transformers.BertConfig(**TEXT, intermediate_size=24, num_labels=4, hidden_dropout_prob=0.0)
    config.attention_probs_dropout_prob = 0.0
    return transformers.BertForSequenceClassification(config), classify, (words(), classes())


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=37, n_positions=12, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    model = transformers.GPT2LMHeadModel(config)
    assert model.lm_head.weight is model.transformer.wte.weight
    return model, predict_next, (words(), torch.randint(0, 37, (EXAMPLES, 6)))


def llama():
    config = transformers.LlamaConfig(**TEXT, intermediate_size=24, num_key_value_heads=1)
    return transformers.LlamaForCausalLM(config), predict_next, (words(), torch.randint(0, 37, (EXAMPLES, 6)))


def t5():
    config = transformers.T5Config(
        vocab_size=37,
        d_model=16,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    inputs = {**words(), "decoder_input_ids": torch.randint(1, 37, (EXAMPLES, EXAMPLES))}
    return transformers.T5ForConditionalGeneration(config), predict_next, (inputs, torch.randint(0, 37, (EXAMPLES, 3)))


def vit():
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=32, patch_size=16
    )
    config.num_labels, config.hidden_dropout_prob, config.attention_probs_dropout_prob = 4, 0.0, 0.0
    return transformers.ViTForImageClassification(config), classify, (pixels(), classes())


def convnext():
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, patch_size=4, num_labels=4)
    return transformers.ConvNextForImageClassification(config), classify, (pixels(), classes())


def resnet():
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=4
    )
    return transformers.ResNetForImageClassification(config), classify, (pixels(), classes())


def build(make):
    torch.manual_seed(0)
    model, loss_fn, batch = make()
    return model.double().train(), loss_fn, batch


def assert_engine_equals_reference(model, loss_fn, batch, engine):
    expected = clipped_grad(model, loss_fn, clipping=Flat(0.5), engine="reference")(*batch)
    grad = clipped_grad(model, loss_fn, clipping=Flat(0.5), engine=engine)
    actual = grad(*batch)
    for name, value in expected.grads.items():
        torch.testing.assert_close(actual.grads[name], value, rtol=1e-8, atol=1e-9, msg=name)
    torch.testing.assert_close(actual.unsafe_norms, expected.unsafe_norms, rtol=1e-8, atol=1e-9)
    return grad


@pytest.mark.parametrize("make", [bert, gpt2, llama, t5, vit, convnext])
def test_auto_takes_bookkeeping_and_equals_the_reference(make):
    grad = assert_engine_equals_reference(*build(make), "auto")
    assert grad.engine == "bookkeeping", grad.engine_reason


def test_resnet_is_refused_for_its_batch_norm_then_accepted_after_the_remedy():
    model, loss_fn, batch = build(resnet)
    with pytest.raises(UnsupportedError, match=r"BatchNorm2d.*replace_batchnorm"):
        clipped_grad(model, loss_fn, clipping=Flat(0.5))(*batch)
    grad = assert_engine_equals_reference(replace_batchnorm(model), loss_fn, batch, "auto")
    assert grad.engine == "bookkeeping", grad.engine_reason
