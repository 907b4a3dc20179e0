"""Models of transformers as they are: a pipeline with calibrated scores, generation with a processor. Nothing is downloaded."""

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc
from hostile import assert_order_kept

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from monocal.export import LogitsProcessor, attach  # noqa: E402  needs torch

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *(f"w{i}" for i in range(40))]
NAMES = ["bad", "fair", "good"]


@pytest.fixture(scope="module")
def classifier():
    """A tiny network with random weights, and its tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(
        vocab_size=len(WORDS), **size, id2label=dict(enumerate(NAMES)), initializer_range=2.0
    )
    return transformers.BertForSequenceClassification(config).eval(), tokenizer


def test_a_pipeline_gives_calibrated_scores(classifier):
    model, tokenizer = classifier
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[4:], 6)) for _ in range(150)]
    classify = transformers.pipeline(
        "text-classification", model=model, tokenizer=tokenizer, top_k=None, device="cpu"
    )

    def scores(**how):
        result = [{one["label"]: one["score"] for one in row} for row in classify(texts, **how)]
        return np.array([[row[name] for name in NAMES] for row in result])

    logits = scores(function_to_apply="none")
    labels = np.array([rng.choice(3, p=p) for p in softmax(0.4 * logits, axis=1)])
    cal = mc.MCCT().fit(logits, labels)
    before = scores()
    handle = attach(model, cal)
    after = scores()
    np.testing.assert_allclose(after, cal.predict_proba(logits), atol=1e-5)
    assert_order_kept(logits, after)
    assert mc.metrics.nll(after, labels) < mc.metrics.nll(before, labels)
    handle.remove()
    np.testing.assert_array_equal(scores(), before)


def test_generation_with_a_padded_vocabulary():
    torch.manual_seed(1)
    config = transformers.GPT2Config(
        vocab_size=48, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=None
    )
    model = transformers.GPT2LMHeadModel(config).eval()
    z = (
        np.random.default_rng(2).standard_normal((300, 40)) * 3
    )  # the calibrator knows 40 tokens, the model emits 48
    y = np.array([np.random.default_rng(i).choice(40, p=p) for i, p in enumerate(softmax(0.5 * z, axis=1))])
    prompt = torch.tensor([[1, 2, 3], [4, 5, 6]])
    how = {"max_new_tokens": 5, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
    plain = model.generate(prompt, do_sample=False, **how)
    for cal in (mc.TemperatureScaling().fit(z, y), mc.MCCT(top_k=10).fit(z, y)):
        process = LogitsProcessor(cal, pad=True)
        greedy = model.generate(
            prompt,
            do_sample=False,
            logits_processor=transformers.LogitsProcessorList([process]),
            output_scores=True,
            return_dict_in_generate=True,
            **how,
        )
        assert torch.equal(greedy.sequences, plain)  # greedy search finds the same tokens
        torch.testing.assert_close(greedy.scores[0].exp().sum(1), torch.ones(2))
        beams = model.generate(prompt, num_beams=2, do_sample=False, logits_processor=[process], **how)
        assert beams.shape == plain.shape
