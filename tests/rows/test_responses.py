"""Responses of language-model servers, in the shapes that they have: read, calibrated, judged and written back."""

import copy
import gzip
import json
import re
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, softmax

import monocal as mc

LETTERS = ["A", "B", "C", "D", "E", " A", "\n", "The"]
K = 5


def rows(n=400, seed=0):
    """Log-probabilities of eight tokens that are twice as steep as the truth, and the true tokens."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.standard_normal((n, len(LETTERS)))
    p = softmax(0.5 * z, axis=1)
    labels = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return log_softmax(z, axis=1), np.minimum(labels, len(LETTERS) - 1)


def chat(z, actual=None, k=K):
    """A chat completion with one position a row, as OpenAI writes it."""
    content = []
    for row, own in zip(z, z.argmax(axis=1) if actual is None else actual, strict=True):
        falling = np.argsort(-row)[:k]

        def named(i, row=row):
            token = LETTERS[i]
            return {"token": token, "logprob": float(row[i]), "bytes": list(token.encode())}

        content.append({**named(own), "top_logprobs": [named(i) for i in falling]})
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "gpt",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "..."},
                "logprobs": {"content": content, "refusal": None},
                "finish_reason": "stop",
            }
        ],
        "usage": {"total_tokens": len(z)},
    }


def completion(z, actual, k=K, name=LETTERS.__getitem__, first=False):
    """A completion: the sampled token stands in ``top_logprobs`` where it is not among the largest, last or (vLLM) first."""
    tops = []
    for row, own in zip(z, actual, strict=True):
        falling = np.argsort(-row)[:k].tolist()
        order = [own, *falling] if first else [*falling, own]
        tops.append({name(i): float(row[i]) for i in order})
    logprobs = {
        "tokens": [name(i) for i in actual],
        "token_logprobs": [float(row[i]) for row, i in zip(z, actual, strict=True)],
        "top_logprobs": tops,
        "text_offset": list(range(len(z))),
    }
    return {"object": "text_completion", "choices": [{"index": 0, "text": "...", "logprobs": logprobs}]}


def prompt(z, actual, k=K):
    """``prompt_logprobs`` of vLLM's server: numbers as keys, the prompt's own token first, then the k largest."""
    found = [None]
    for row, own in zip(z, actual, strict=True):
        falling = np.argsort(-row)
        rank = {int(i): r for r, i in enumerate(falling, start=1)}
        order = [int(own), *map(int, falling[:k])]
        found.append(
            {str(i): {"logprob": float(row[i]), "rank": rank[i], "decoded_token": LETTERS[i]} for i in order}
        )
    return found


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


@pytest.mark.parametrize("first", [False, True], ids=["last", "first"])
@pytest.mark.parametrize("name", [LETTERS.__getitem__, "token_id:{}".format], ids=["text", "numbers"])
def test_the_sampled_token_of_a_completion_is_no_part_of_the_row(first, name):
    z, y = rows()
    response = completion(z, y, first=first, name=name)
    vocabulary = None if "token_id" in name(0) else LETTERS
    top = mc.TopK.from_openai(response, vocabulary=vocabulary, n_classes=50, k=K)
    ids = np.argsort(-z, axis=1)[:, :K]
    np.testing.assert_array_equal(np.sort(top.values, axis=1), np.sort(np.take_along_axis(z, ids, 1), axis=1))
    np.testing.assert_array_equal(np.sort(top.ids, axis=1), np.sort(ids, axis=1))
    np.testing.assert_array_equal(top.tokens, y)
    assert 0.05 < (~(ids == y[:, None]).any(axis=1)).mean() < 0.5  # some were sampled from below
    # Without k it is left out where it is the lowest, also where it is the k-th largest.
    bare = mc.TopK.from_openai(response, vocabulary=vocabulary, n_classes=50)
    missed = np.isinf(bare.values)
    np.testing.assert_array_equal(np.where(missed, top.values, bare.values), top.values)
    np.testing.assert_array_equal(missed[:, -1], ids[:, -1] == y)


def test_a_chat_of_vllm_puts_the_sampled_token_first_and_loses_the_last():
    z, y = rows(50)
    response = chat(z, actual=y)
    for item in response["choices"][0]["logprobs"]["content"]:
        own = {key: item[key] for key in ("token", "logprob", "bytes")}
        if own not in item["top_logprobs"]:
            item["top_logprobs"] = [own, *item["top_logprobs"][:-1]]
    top = mc.TopK.from_vllm(response, vocabulary=LETTERS)
    low = ~(np.argsort(-z, axis=1)[:, :K] == y[:, None]).any(axis=1)
    assert low.sum() > 3
    np.testing.assert_array_equal(np.isinf(top.values).sum(axis=1), low)
    np.testing.assert_array_equal(top.values[low, : K - 1], -np.sort(-z[low], axis=1)[:, : K - 1])


def test_prompts_of_vllm_are_calibrated_on_their_own_text():
    z, y = rows(1000)
    found = prompt(z, y)
    top = mc.TopK.from_vllm(
        {"choices": [{"index": 0, "text": "", "prompt_logprobs": found}]}, n_classes=8, k=K
    )
    np.testing.assert_array_equal(
        top.values, -np.sort(-z, axis=1)[:, :K]
    )  # the actual token is dropped by its rank
    np.testing.assert_array_equal(top.tokens, y)
    assert top.places[0].tolist() == [0, 0, 1]  # the first token has none
    cal = mc.TemperatureScaling().fit(top, top.tokens)
    assert 1.5 < cal.temperature_ < 2.5
    assert cal.score(top, y) > -mc.metrics.nll(top, y) + 0.02
    # Chat responses have them beside the choices; there are those of what was generated, too.
    both = {**chat(z[:3]), "prompt_logprobs": found[:4], "prompt_token_ids": [0, *map(int, y[:3])]}
    with pytest.raises(mc.InputError, match="Say which: part='prompt' or"):
        mc.TopK.from_vllm(both)
    np.testing.assert_array_equal(mc.TopK.from_vllm(both, part="prompt").tokens, y[:3])
    assert mc.TopK.from_vllm(both, part="generated").values.shape == (3, K)
    # Where somebody has sorted the keys, the actual token is not known by standing first.
    ordered = json.loads(json.dumps({"prompt_logprobs": found}, sort_keys=True))
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
    # The sampled token has the number that stands beside it among the largest, or that of each other token.
    top = mc.TopK.from_openai(responses[0])
    result = mc.TemperatureScaling().fit(top, top.tokens).predict_proba(top)
    for i, item in enumerate(result.to_response()["choices"][0]["logprobs"]["content"]):
        beside = {e["token"]: e["logprob"] for e in item["top_logprobs"]}
        if i != 3:
            assert item["logprob"] == beside.get(item["token"], result.log_each[i])


def test_uncalibrated_numbers_come_back_as_they_were():
    z, _ = rows(30)
    response = chat(z)
    written = mc.TopK.from_openai(response).probabilities().to_response()
    for old, new in zip(*(r["choices"][0]["logprobs"]["content"] for r in (response, written)), strict=True):
        assert new["logprob"] == pytest.approx(old["logprob"], abs=1e-12)
        assert [e["logprob"] for e in new["top_logprobs"]] == pytest.approx(
            [e["logprob"] for e in old["top_logprobs"]], abs=1e-12
        )


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
    with pytest.raises(mc.FileError, match=r"bad\.jsonl, line 2, is no JSON"):
        mc.TopK.from_openai(tmp_path / "bad.jsonl")
    with pytest.raises(mc.FileError, match="There is no file"):
        mc.TopK.from_openai(tmp_path / "none.json")


def test_tokens_that_look_alike_are_different_classes():
    z = log_softmax(np.array([[3.0, 2.0, 1.0, 0.0, -1.0, -2, -3, -4]]))
    response = chat(z)
    for entry in response["choices"][0]["logprobs"]["content"][0]["top_logprobs"][1:3]:
        entry["token"] = "�"
    top = mc.TopK.from_openai(response)
    assert len(set(top.ids[0])) == K
    assert top.vocabulary["�", b"B"] != top.vocabulary["�", b"C"]
    bare = copy.deepcopy(response)
    content = bare["choices"][0]["logprobs"]["content"][0]
    for entry in [content, *content["top_logprobs"]]:
        entry["bytes"] = None
    unbytes = mc.TopK.from_openai(bare)
    assert unbytes.vocabulary["�"] != unbytes.vocabulary["�", 2]
    more = mc.TopK.from_openai(chat(z), vocabulary=top.vocabulary)  # goes on where that ended
    assert more.vocabulary["A"] == top.vocabulary["A"] == 0
    assert more.vocabulary["B"] == len(top.vocabulary)
    assert "B" not in top.vocabulary
    with pytest.raises(mc.InputError, match="the token '�' twice, so texts do not tell tokens apart"):
        mc.TopK.from_openai(response, vocabulary=[*LETTERS, "�"])


def test_alike_tokens_are_told_apart_by_bytes_or_by_their_numbers():
    """Parts of characters all print as one sign; which of them comes first differs from row to row."""

    def entry(text, data, value):
        return {"token": text, "bytes": data, "logprob": value}

    first = [entry("�", [226], -0.4), entry("�", [240], -1.5), entry("A", [65], -3.0)]
    second = [first[1] | {"logprob": -0.4}, first[0] | {"logprob": -1.5}, first[2]]
    content = [{**own, "top_logprobs": top} for own, top in ((first[1], first), (second[0], second))]
    response = {"choices": [{"logprobs": {"content": content}}]}
    top = mc.TopK.from_openai(response)
    assert top.ids.tolist() == [[0, 1, 2], [1, 0, 2]]
    assert top.tokens.tolist() == [1, 1]
    assert top.class_numbers(["A", "A"]).tolist() == [2, 2]
    numbered = mc.TopK.from_openai(response, vocabulary={("�", b"\xe2"): 7, ("�", b"\xf0"): 8, "A": 9})
    assert numbered.tokens.tolist() == [8, 8]
    bare = json.loads(json.dumps(response).replace("[226]", "null").replace("[240]", "null"))
    top = mc.TopK.from_openai(bare)
    assert top.tokens.tolist() == [top.ids[0, 1], top.ids[1, 0]]
    own = mc.TopK.from_openai(bare).probabilities().to_response()["choices"][0]["logprobs"]["content"][0]
    assert own["logprob"] == own["top_logprobs"][1]["logprob"]
    named = [entry("token_id:5", [65], -0.4), entry("token_id:3", [66], -1.5)]
    got = mc.TopK.from_openai({"choices": [{"logprobs": {"content": [{**named[0], "top_logprobs": named}]}}]})
    assert got.ids.tolist() == [[5, 3]]


def test_filled_places_do_not_hide_the_token_of_number_0():
    tops = [{"A": -0.5, "B": -1.5, "C": -2.5}, {"A": -0.3, "B": -1.8}, {"B": -0.6, "A": -1.4, "C": -2.6}]
    content = [
        {"token": next(iter(row)), "logprob": max(row.values()),
         "top_logprobs": [{"token": t, "logprob": v} for t, v in row.items()]}
        for row in tops
    ]  # fmt: skip
    written = (
        mc.TopK.from_openai({"choices": [{"logprobs": {"content": content}}]}).probabilities().to_response()
    )
    for item, row in zip(written["choices"][0]["logprobs"]["content"], tops, strict=True):
        assert {e["token"]: e["logprob"] for e in item["top_logprobs"]} == pytest.approx(row, abs=0.01)
        assert item["logprob"] == pytest.approx(max(row.values()), abs=0.01)


@pytest.mark.parametrize("k", [None, 2, 3])
def test_a_tie_with_the_sampled_token_stays_a_tie(k):
    values = {"B": -2.0, "A": -0.4, "C": -2.0}
    entries = [{"token": t, "logprob": v} for t, v in values.items()]
    shapes = [
        {"content": [{**entries[0], "top_logprobs": entries}]},
        {"tokens": ["B"], "token_logprobs": [-2.0], "top_logprobs": [values]},
    ]
    for shape in shapes:
        top = mc.TopK.from_openai({"choices": [{"logprobs": shape}]}, n_classes=100, k=k)
        assert np.isfinite(top.values).sum() == (k or 3)
        cal = mc.TemperatureScaling().fit(*largest_of_all())
        logprobs = cal.predict_proba(top).to_response()["choices"][0]["logprobs"]
        if "content" in logprobs:
            (item,) = logprobs["content"]
            got, own = {e["token"]: e["logprob"] for e in item["top_logprobs"]}, item["logprob"]
        else:
            (got,), (own,) = logprobs["top_logprobs"], logprobs["token_logprobs"]
        assert got["B"] == got["C"] == own < got["A"]


def largest_of_all():
    z, y = rows(100)
    return mc.TopK.from_openai(chat(z), vocabulary=LETTERS), y


@pytest.mark.parametrize("k", [None, K])
@pytest.mark.parametrize("form", ["chat", "completion", "vllm", "plain"])
def test_a_response_alone_is_the_response_in_its_batch(form, k):
    """Rows of different lengths: what is sampled stands beside the largest, or the model has few tokens left."""
    z, y = rows(60)

    def response(i):
        one, own = z[i : i + 1], y[i : i + 1]
        width = K - i % 3
        if form == "chat":
            return chat(one, k=width)
        if form == "completion":
            return completion(one, own, k=width, first=i % 2 == 0)
        found = prompt(one, own, k=width)
        if form == "plain":
            found = [None, {token: e["logprob"] for token, e in found[1].items()}]
        return {"prompt_logprobs": found}

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


def test_what_is_wrong_is_said():
    z, y = rows(20)
    good = chat(z)
    bare = copy.deepcopy(good)
    for item in bare["choices"][0]["logprobs"]["content"]:
        item["top_logprobs"] = []
    texts = {
        "there are no log-probabilities in them. Ask the server": {"choices": [{"logprobs": None}]},
        "position 0 names no likely tokens. Ask the server for them: top_logprobs=20": bare,
        "response 1 has no log-probabilities, others have": [good, {"choices": []}],
        "there are none": [],
        "logsumexp: in row 0": chat(z + 5.0),
        "'x' stands for the log-probability": completion(z, y) | {
            "choices": [{"logprobs": {"tokens": ["A"], "top_logprobs": [{"A": "x"}]}}]
        },
        "has the key 'A': expected a token's number": {"prompt_logprobs": [{"A": {"logprob": -1.0}}]},
    }  # fmt: skip
    for text, response in texts.items():
        with pytest.raises(mc.InputError, match=text.replace("(", r"\(")):
            mc.TopK.from_vllm(response)
    with pytest.raises(mc.InputError, match="no log-probabilities of the generated part"):
        mc.TopK.from_openai({"choices": [{"prompt_logprobs": prompt(z, y)}]})
    with pytest.raises(
        mc.InputError, match="choice 0 has 20 positions with log-probabilities, and 20 is asked"
    ):
        mc.TopK.from_openai(good, position=20)
    with pytest.raises(mc.InputError, match="position must be"):
        mc.TopK.from_openai(good, position="first")
    with pytest.raises(mc.InputError, match="part must be one of"):
        mc.TopK.from_vllm(good, part="both")
    with pytest.raises(mc.InputError, match="vocabulary must be a mapping"):
        mc.TopK.from_openai(good, vocabulary="tokens.json")
    with pytest.raises(mc.InputError, match=r"has the token .* which it lacks"):
        mc.TopK.from_openai(good, vocabulary=["A", "B"])
    top = mc.TopK.from_openai(good)
    with pytest.raises(mc.InputError, match="no label is a token of these responses; the first is 'yes'"):
        mc.TemperatureScaling().fit(top, ["yes"] * 20)
    with pytest.raises(mc.InputError, match="to_response: these rows came from arrays"):
        mc.TopK(top.values, top.ids).probabilities().to_response()


def test_shapes_that_no_server_writes_are_refused_in_a_sentence():
    def of_chat(**item):
        entry = {"token": "A", "logprob": -0.5, **item}
        return {
            "choices": [{"logprobs": {"content": [{"token": "A", "logprob": -0.5, "top_logprobs": [entry]}]}}]
        }

    def of_texts(**more):
        return {"choices": [{"logprobs": {"tokens": ["A"], "top_logprobs": [{"A": -0.5}], **more}}]}

    row = {"5": {"logprob": -0.5, "rank": 1}}
    texts = {
        "response 0 has 5 under 'choices': expected a list": {"choices": 5},
        "response 0 has 5 under 'outputs': expected a list": {"outputs": 5},
        "has 5 under 'content': expected a list": {"choices": [{"logprobs": {"content": 5}}]},
        "has 'A' under 'top_logprobs'": {"choices": [{"logprobs": {"content": [{"top_logprobs": "A"}]}}]},
        "has [1, 2] for its likely tokens": of_texts(top_logprobs=[[1, 2]]),
        "has the token None: expected text": {"choices": [{"logprobs": {"content": [{"top_logprobs": [[1, 2]]}]}}]},
        "has the token ['A']: expected text": of_chat(token=["A"]),
        "has [300] under 'bytes'": of_chat(bytes=[300]),
        "has 5 under 'tokens'": of_texts(tokens=5),
        "has the token ['A']": of_texts(tokens=[["A"]]),
        "has the rank '1': expected a whole number": {"prompt_logprobs": [{"5": {"logprob": -1.0, "rank": "1"}}]},
        "position 1 has no number in 'prompt_token_ids'": {"prompt_logprobs": [None, row], "prompt_token_ids": [1]},
        "position 0 has no number in 'prompt_token_ids'": {"prompt_logprobs": [row], "prompt_token_ids": ["x"]},
        "has 5 for its likely tokens": {"prompt_logprobs": [5]},
        "has 'x' under 'prompt_logprobs'": {"prompt_logprobs": "x"},
        "has the key '9999999999999999999": {"prompt_logprobs": [{"9" * 5000: -0.5}]},
        "stands for the log-probability of 'A'": of_chat(logprob=10**400),
    }  # fmt: skip
    for text, response in texts.items():
        with pytest.raises(mc.InputError, match=re.escape(text)):
            mc.TopK.from_vllm(response)
    short = mc.TopK.from_openai(of_texts(token_logprobs=[]))
    assert short.probabilities().to_response()["choices"][0]["logprobs"]["token_logprobs"] == []
    z, _ = rows(4)
    responses = [chat(z[i : i + 1]) for i in range(4)]
    np.testing.assert_array_equal(
        mc.TopK.from_openai(r for r in responses).values, mc.TopK.from_openai(responses).values
    )


JUNK = (5, -1, 10**30, "x", None, [], {}, [[1, 2]], True, np.nan, np.inf, [None], {"a": 1}, -9999.0)


def within(value, path=()):
    """Paths to everything within parsed JSON."""
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in members:
        yield (*path, key)
        yield from within(member, (*path, key))


@pytest.mark.filterwarnings("ignore:logsumexp")
@pytest.mark.parametrize("form", ["chat", "completion", "prompt", "outputs"])
def test_junk_anywhere_in_a_response_is_read_or_refused(form):
    z, y = rows(1)
    response = {
        "chat": chat(z, k=2),
        "completion": completion(z, y, k=2),
        "prompt": {"choices": [{"prompt_logprobs": prompt(z, y, k=2), "prompt_token_ids": [0, *y.tolist()]}]},
        "outputs": {"outputs": [{"logprobs": prompt(z, y, k=2)[1:], "token_ids": y.tolist()}]},
    }[form]
    refused = 0
    for *path, last in within(response):
        for junk in JUNK:
            broken = copy.deepcopy(response)
            holder = broken
            for key in path:
                holder = holder[key]
            holder[last] = junk
            try:
                mc.TopK.from_vllm(broken).probabilities().to_response()
            except mc.InputError:
                refused += 1
    assert refused > 50


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ({"A": 0.5}, "vocabulary has 0.5 for the token 'A': expected a whole number"),
        ({"A": "0"}, "vocabulary has '0' for the token 'A'"),
        ({"A": -1}, "vocabulary has -1 for the token 'A'"),
        ({"A": 2**63}, "for the token 'A': expected a whole number"),
        ({"A": 1, "B": 1}, "the number 1 for 'A' and for 'B'"),
        (["A", "B", "A"], "the token 'A' twice"),
    ],
)
def test_vocabularies_that_are_none(vocabulary, message):
    with pytest.raises(mc.InputError, match=re.escape(message)):
        mc.TopK.from_openai(chat(rows(3)[0]), vocabulary=vocabulary)


def test_metrics_are_those_of_all_probabilities_where_the_tail_is_flat():
    rng = np.random.default_rng(3)
    z = np.full((300, 40), -2.0)
    z[:, :6] = 3 * rng.random((300, 6))
    z = rng.permuted(z, axis=1)
    y = np.array([rng.choice(40, p=p) for p in softmax(0.6 * z, axis=1)])
    ids = np.argsort(-z, axis=1)[:, :6]
    top = mc.TopK(np.take_along_axis(z, ids, 1), ids, logsumexp(z, axis=1), 40)
    weight = rng.integers(0, 3, 300)
    for cal in (None, mc.TemperatureScaling().fit(z, y), mc.MCCT(top_k=6).fit(z, y)):
        whole = softmax(z, axis=1) if cal is None else cal.predict_proba(z)
        largest = top if cal is None else cal.predict_proba(top)
        got = mc.evaluate(largest, y, n_boot=20, sample_weight=weight)
        expected = mc.evaluate(whole, y, n_boot=20, sample_weight=weight)
        assert {"nll", "brier", "ece", "accuracy", "top_k_accuracy", "smooth_ece"} <= set(got.estimates)
        assert "classwise_ece" not in got.estimates
        assert (got.n_samples, got.n_classes) == (expected.n_samples, 40)
        for name, estimate in got.estimates.items():
            for end in ("value", "low", "high"):
                a, b = getattr(estimate, end), getattr(expected[name], end)
                assert a is b is None or a == pytest.approx(b, abs=1e-6), name
        if cal is not None:
            assert cal.score(top, y, weight) == pytest.approx(cal.score(z, y, weight), abs=1e-6)
            assert mc.metrics.nll(largest, y) == pytest.approx(-cal.score(top, y), abs=1e-9)
    with pytest.raises(mc.InputError, match=r"metrics by class need all\. Leave out brier_calibration"):
        mc.metrics.classwise_ece(top, y)
    for call in (
        lambda: mc.evaluate(top, y, metrics="top_k_accuracy", top_k=7),
        lambda: mc.metrics.top_k_accuracy(top, y, k=7),
    ):
        with pytest.raises(
            mc.InputError, match="top_k_accuracy: the rows name 6 classes, and 7 are asked for"
        ):
            call()
    assert "top_k_accuracy" not in mc.evaluate(top, y, top_k=7).estimates
    with pytest.raises(mc.InputError, match="label 40 in row 0"):
        mc.evaluate(top, [40] * 300)
