"""Which token is which in a response: the sampled one, tokens that look alike, ties, vocabularies."""

import re

import numpy as np
import pytest
from scipy.special import log_softmax
from server_responses import LETTERS, K, chat, completion, rows

import monocal as mc


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


def test_tokens_that_look_alike_are_different_classes():
    z = log_softmax(np.array([[3.0, 2.0, 1.0, 0.0, -1.0, -2, -3, -4]]))
    response = chat(z)
    for entry in response["choices"][0]["logprobs"]["content"][0]["top_logprobs"][1:3]:
        entry["token"] = "�"
    top = mc.TopK.from_openai(response)
    assert len(set(top.ids[0])) == K
    assert top.vocabulary["�", b"B"] != top.vocabulary["�", b"C"]
    more = mc.TopK.from_openai(chat(z), vocabulary=top.vocabulary)  # goes on where that ended
    assert more.vocabulary["A"] == top.vocabulary["A"] == 0
    assert more.vocabulary["B"] == len(top.vocabulary)
    assert "B" not in top.vocabulary
    for entry in response["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
        entry["bytes"] = None
    for vocabulary in (None, [*LETTERS, "�"]):
        with pytest.raises(mc.InputError, match="a token twice, so texts do not tell tokens apart"):
            mc.TopK.from_openai(response, vocabulary=vocabulary)


def test_alike_tokens_are_distinguished_by_bytes_or_by_their_numbers():
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


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ({"A": 0.5}, "one has 0.5"),
        ({"A": "0"}, "one has '0'"),
        ({"A": 2**63}, "every token must have a whole number of its own, from 0 on"),
        ({"A": 1, "B": 1}, "two have the same"),
        (["A", "B", "A"], "the token 'A' twice"),
    ],
)
def test_vocabularies_that_are_none(vocabulary, message):
    with pytest.raises(mc.InputError, match=re.escape(message)):
        mc.TopK.from_openai(chat(rows(3)[0]), vocabulary=vocabulary)
