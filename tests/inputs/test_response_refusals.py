"""Responses that are wrong, that no server writes, or that are broken anywhere: read, or refused in a sentence."""

import copy
import re

import numpy as np
import pytest
from server_responses import chat, completion, prompt, rows

import monocal as mc


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
        "'x' is given as the log-probability": completion(z, y) | {
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
        "is given as the log-probability of 'A'": of_chat(logprob=10**400),
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
