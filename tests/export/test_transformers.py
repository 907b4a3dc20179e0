"""Generation by a model of transformers with a processor; docs/serving.md runs a pipeline. Nothing is downloaded."""

import numpy as np
import pytest
from scipy.special import softmax

import monocal as mc

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from monocal.export import LogitsProcessor  # noqa: E402  needs torch


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
