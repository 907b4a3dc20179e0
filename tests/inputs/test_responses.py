"""Responses of language-model servers, in the shapes that they have: read, calibrated, judged and written back."""

import copy
import gzip
import json
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from server_responses import LETTERS, K, chat, completion, prompt, rows

import monocal as mc


def test_chat_is_the_same_as_arrays():
    z, y = rows()
    top = mc.TopK.from_openai(chat(z), n_classes=50)
    ids = np.argsort(-z, axis=1)[:, :K]
    arrays = mc.TopK(np.take_along_axis(z, ids, axis=1), ids, n_classes=50)
    np.testing.assert_array_equal(top.values, arrays.values)
    texts = np.array(LETTERS)[y]
    got = mc.MCCT().fit(top, texts)
    expected = mc.MCCT().fit(arrays, y)
    np.testing.assert_allclose(got.weights_, expected.weights_, atol=1e-9)
    assert got.score(top, texts) == pytest.approx(expected.score(arrays, y), abs=1e-12)
    for name in ("nll", "ece", "accuracy", "brier", "smooth_ece"):
        a, b = (mc.evaluate(c.predict_proba(t), lab)[name].value for c, t, lab in
                ((got, top, texts), (expected, arrays, y)))  # fmt: skip
        assert a == pytest.approx(b, abs=1e-9)
    assert top.places.tolist() == [[0, 0, j] for j in range(len(z))]
    assert [LETTERS[i] for i in z.argmax(axis=1)][:5] == [
        {v: t for t, v in top.vocabulary.items()}[i] for i in top.tokens[:5]
    ]
    assert len(mc.TopK.from_openai([chat(z), chat(z)], position=-1)) == 2
    sampled = mc.TopK.from_openai(chat(z), vocabulary=LETTERS)
    np.testing.assert_array_equal(sampled.tokens, z.argmax(axis=1))


def test_the_responses_api_is_the_same_as_chat():
    z, y = rows()
    tokens = chat(z)["choices"][0]["logprobs"]["content"]
    text = {"type": "output_text", "text": "...", "annotations": [], "logprobs": tokens}
    message = {"type": "message", "role": "assistant", "content": [text]}
    reply = {"object": "response", "output": [{"type": "reasoning", "summary": []}, message]}
    top, expected = (mc.TopK.from_openai(result, n_classes=50) for result in (reply, chat(z)))
    np.testing.assert_array_equal(top.values, expected.values)
    np.testing.assert_array_equal(top.tokens, expected.tokens)
    assert top.places[:2].tolist() == [[0, 0, 0], [0, 0, 1]]
    cal = mc.MCCT().fit(top, np.array(LETTERS)[y])
    again = cal.predict_proba(top).to_response()
    other = cal.predict_proba(expected).to_response()
    assert again["output"][1]["content"][0]["logprobs"] == other["choices"][0]["logprobs"]["content"]
    objects = SimpleNamespace(output=[SimpleNamespace(content=[SimpleNamespace(logprobs=tokens)])])
    np.testing.assert_array_equal(mc.TopK.from_openai(objects).values, top.values)
    text["logprobs"] = []
    with pytest.raises(mc.InputError, match=r"include=\['message\.output_text\.logprobs'\]"):
        mc.TopK.from_openai(reply)


def test_prompts_of_vllm_are_calibrated_on_their_own_text():
    z, y = rows(1000)
    result = prompt(z, y)
    top = mc.TopK.from_vllm(
        {"choices": [{"index": 0, "text": "", "prompt_logprobs": result}]}, n_classes=8, k=K
    )
    np.testing.assert_array_equal(
        top.values, -np.sort(-z, axis=1)[:, :K]
    )  # the actual token is dropped by its rank
    np.testing.assert_array_equal(top.tokens, y)
    assert top.places[0].tolist() == [0, 0, 1]  # the first token has none
    cal = mc.TemperatureScaling().fit(top, top.tokens)
    assert 1.5 < cal.temperature_ < 2.5
    assert cal.score(top, y) > -mc.metrics.nll(top, y) + 0.02
    # Chat responses have them next to the choices; there are those of what was generated, too.
    both = {**chat(z[:3]), "prompt_logprobs": result[:4], "prompt_token_ids": [0, *map(int, y[:3])]}
    with pytest.raises(mc.InputError, match="Say which: part='prompt' or"):
        mc.TopK.from_vllm(both)
    np.testing.assert_array_equal(mc.TopK.from_vllm(both, part="prompt").tokens, y[:3])
    assert mc.TopK.from_vllm(both, part="generated").values.shape == (3, K)
    # Where somebody has sorted the keys, the actual token is not known by standing first.
    ordered = json.loads(json.dumps({"prompt_logprobs": result}, sort_keys=True))
    assert mc.TopK.from_vllm(ordered).tokens is None
    ordered["prompt_token_ids"] = [0, *y.tolist()]
    np.testing.assert_array_equal(mc.TopK.from_vllm(ordered).tokens, y)


@dataclass
class Logprob:
    """As in vLLM."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


def test_objects_of_vllm():
    z, y = rows(200)
    steps = [{int(i): Logprob(**entry) for i, entry in row.items()} for row in prompt(z, y)[1:]]
    outputs = [
        SimpleNamespace(prompt_logprobs=None, outputs=[SimpleNamespace(token_ids=y.tolist(), logprobs=steps)])
    ]
    top = mc.TopK.from_vllm(outputs, k=K)
    np.testing.assert_array_equal(top.values, -np.sort(-z, axis=1)[:, :K])
    cal = mc.MCCT().fit(top, y)
    result = cal.predict_proba(top)
    (again,) = result.to_response()
    assert again.outputs[0].token_ids == y.tolist()
    first = again.outputs[0].logprobs[0]
    assert [e.rank for e in first.values()] == [e.rank for e in steps[0].values()]
    largest = max(first, key=lambda i: first[i].logprob)
    assert first[largest].logprob == result.log_probabilities[0].max()
    assert largest == z[0].argmax()
    plain = [{i: e.logprob for i, e in row.items() if e.rank <= K} for row in steps]
    bare = mc.TopK.from_vllm(SimpleNamespace(outputs=[SimpleNamespace(logprobs=plain)]))
    # Without ranks an actual token that stands first and is the lowest may be the k-th largest, or far below.
    missed = np.isinf(bare.values)
    assert not missed[:, :-1].any()
    np.testing.assert_array_equal(np.where(missed, top.values, bare.values), top.values)
    np.testing.assert_array_equal(missed[:, -1], z[np.arange(200), y] == top.values[:, -1])


def numbers_gone(value):
    """The same without its log-probabilities."""
    if isinstance(value, dict):
        return {k: numbers_gone(v) for k, v in value.items()}
    if isinstance(value, list):
        return [numbers_gone(v) for v in value]
    return "#" if isinstance(value, float) else value


def test_what_is_written_back_differs_in_its_numbers_alone():
    z, y = rows(60)
    z[5] = log_softmax(np.array([0.0, -1, -2, -3, -4, -5, -6, -7]))
    responses = [chat(z, actual=y), completion(z, y), {"choices": [{"prompt_logprobs": prompt(z, y)}]}]
    responses[0]["choices"][0]["logprobs"]["content"][3]["top_logprobs"][-1]["logprob"] = -9999.0
    for response in responses:
        before = copy.deepcopy(response)
        top = mc.TopK.from_vllm(response)
        cal = mc.MCCT().fit(top, top.tokens)
        result = cal.predict_proba(top)
        written = result.to_response()
        assert response == before
        assert numbers_gone(written) == numbers_gone(response)
        assert json.loads(json.dumps(written, allow_nan=False)) == written
        again = mc.TopK.from_vllm(written)
        # What comes back is what was predicted, in the order of the server.
        np.testing.assert_allclose(np.sort(again.values), np.sort(result.log_probabilities), atol=1e-12)
        named = np.isfinite(top.values)
        pairs = top.values[:, :, None] <= top.values[:, None, :]
        logs = result.log_probabilities
        assert (logs[:, :, None] <= logs[:, None, :])[pairs & named[:, :, None] & named[:, None, :]].all()
        np.testing.assert_array_equal(logs.argmax(axis=1), top.values.argmax(axis=1))
        np.testing.assert_allclose(logsumexp(logs, axis=1, b=named), np.log1p(-result.rest), atol=1e-9)
        # A row alone is the row among others.
        alone = cal.predict_proba(top[7])
        np.testing.assert_array_equal(alone.log_probabilities[0], logs[7])
    marked = responses[0]["choices"][0]["logprobs"]["content"][3]
    assert marked["top_logprobs"][-1]["logprob"] == -9999.0
    # The sampled token has the number of its entry among the largest, or that of each other token.
    top = mc.TopK.from_openai(responses[0])
    result = mc.TemperatureScaling().fit(top, top.tokens).predict_proba(top)
    for i, item in enumerate(result.to_response()["choices"][0]["logprobs"]["content"]):
        others = {e["token"]: e["logprob"] for e in item["top_logprobs"]}
        if i != 3:
            assert item["logprob"] == others.get(item["token"], result.log_each[i])


def test_files_and_batches(tmp_path):
    z, y = rows(12)
    single = [chat(z[i : i + 1]) for i in range(12)]
    batch = [
        {"custom_id": str(i), "response": {"status_code": 200, "body": r}, "error": None}
        for i, r in enumerate(single)
    ]
    paths = [tmp_path / name for name in ("a.json", "b.jsonl", "batch.jsonl", "c.jsonl.gz")]
    paths[0].write_text(json.dumps(single))
    paths[1].write_text("".join(json.dumps(r) + "\n" for r in single))
    paths[2].write_text("\n".join(map(json.dumps, batch)))
    paths[3].write_bytes(gzip.compress(paths[1].read_bytes()))
    for path in paths:
        top = mc.TopK.from_openai(path)
        np.testing.assert_array_equal(top.values, mc.TopK.from_openai(single).values)
        assert top.places[:, 0].tolist() == list(range(12))
    cal = mc.TemperatureScaling().fit(top, np.array(LETTERS)[y])
    written = cal.predict_proba(mc.TopK.from_openai(str(paths[2]))).to_response()
    assert [w["custom_id"] for w in written] == [b["custom_id"] for b in batch]
    batch[3] = {"custom_id": "3", "response": None, "error": {"message": "too long"}}
    with pytest.raises(mc.InputError, match=r"response 3 of the batch is an error .*too long"):
        mc.TopK.from_openai(batch)
    (tmp_path / "bad.jsonl").write_text('{"choices": []}\n{"choices": [\n')
    with pytest.raises(mc.FileError, match=r"bad\.jsonl, line 2, cannot be read"):
        mc.TopK.from_openai(tmp_path / "bad.jsonl")


@pytest.mark.parametrize("k", [None, K])
@pytest.mark.parametrize("form", ["chat", "completion", "vllm", "plain"])
def test_a_response_alone_is_the_response_in_its_batch(form, k):
    """Rows of different lengths: what is sampled is named besides the largest, or the model has few tokens left."""
    z, y = rows(60)

    def response(i):
        one, own = z[i : i + 1], y[i : i + 1]
        width = K - i % 3
        if form == "chat":
            return chat(one, k=width)
        if form == "completion":
            return completion(one, own, k=width, first=i % 2 == 0)
        result = prompt(one, own, k=width)
        if form == "plain":
            result = [None, {token: e["logprob"] for token, e in result[1].items()}]
        return {"prompt_logprobs": result}

    responses = [response(i) for i in range(60)]
    together = mc.TopK.from_vllm(responses, vocabulary=None if form in ("vllm", "plain") else LETTERS, k=k)
    cal = mc.MCCT(shrinkage=0.01).fit(together, y)
    assert len(np.unique(cal.weights_)) > 1
    expected = cal.predict_proba(together).to_response()
    for i, one in enumerate(responses):
        alone = mc.TopK.from_vllm(one, vocabulary=None if form in ("vllm", "plain") else LETTERS, k=k)
        n = alone.values.shape[1]
        np.testing.assert_array_equal(alone.values[0], together.values[i, :n])
        assert np.isinf(together.values[i, n:]).all()
        assert cal.predict_proba(alone).to_response() == expected[i]
