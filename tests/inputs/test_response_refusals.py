"""Responses that are wrong, that no server writes, or that are broken anywhere: read, or refused in a sentence."""

import copy
import re

import numpy as np
import pytest
from server_responses import chat, completion, prompt, rows

import monocal as mc


def of_chat(**item):
    entry = {"token": "A", "logprob": -0.5, **item}
    content = [{"token": "A", "logprob": -0.5, "top_logprobs": [entry]}]
    return {"choices": [{"logprobs": {"content": content}}]}


GOOD = chat(rows(20)[0])
WRONG = {
    "there are no log-probabilities in them. Ask the server": {"choices": [{"logprobs": None}]},
    "position 0 names no likely tokens. Ask the server": {"choices": [{"logprobs": {"content": [{"top_logprobs": []}]}}]},
    "response 1 has no log-probabilities, others have": [GOOD, {"choices": []}],
    "there are none": [],
    "logsumexp: in row 0": chat(rows(20)[0] + 5.0),
    "'x' is given as the log-probability of 'A'": of_chat(logprob="x"),
    "is given as the log-probability of 'A'": of_chat(logprob=10**400),
    "['A'] is given as a token, expected text": of_chat(token=["A"]),
    "'A' is given as a token's number": {"prompt_logprobs": [{"A": {"logprob": -1.0}}]},
    "is given as a token's number": {"prompt_logprobs": [{"9" * 5000: -0.5}]},
    "response 0 is not what servers write": {"choices": 5},
    "response 1 is not what servers write": [GOOD, of_chat(bytes=[300])],
    "is not what servers write ('str'": {"prompt_logprobs": [{"5": {"logprob": -1.0, "rank": "1"}}]},
    "is not what servers write (list index": {
        "prompt_logprobs": [None, {"5": {"logprob": -0.5}}], "prompt_token_ids": [1]
    },
}  # fmt: skip


@pytest.mark.parametrize("words", WRONG)
def test_what_is_wrong_is_said(words):
    with pytest.raises(mc.InputError, match=re.escape(words)):
        mc.TopK.from_vllm(WRONG[words])


def test_what_is_wrong_with_arguments_is_said():
    z, y = rows(20)
    with pytest.raises(mc.InputError, match="no log-probabilities of the generated part"):
        mc.TopK.from_openai({"choices": [{"prompt_logprobs": prompt(z, y)}]})
    for words, options in {
        "has 20 positions with log-probabilities, and 20 is asked": {"position": 20},
        "position must be": {"position": "first"},
        "vocabulary must be a mapping": {"vocabulary": "tokens.json"},
        "has the token .* which it lacks": {"vocabulary": ["A", "B"]},
    }.items():
        with pytest.raises(mc.InputError, match=words):
            mc.TopK.from_openai(GOOD, **options)
    with pytest.raises(mc.InputError, match="part must be one of"):
        mc.TopK.from_vllm(GOOD, part="both")
    top = mc.TopK.from_openai(GOOD)
    with pytest.raises(mc.InputError, match="no label is a token of these responses; the first is 'yes'"):
        mc.TemperatureScaling().fit(top, ["yes"] * 20)
    with pytest.raises(mc.InputError, match="to_response: these rows came from arrays"):
        mc.TopK(top.values, top.ids).probabilities().to_response()
    one, other = (mc.TopK.from_openai(form([GOOD, GOOD])) for form in (iter, list))
    np.testing.assert_array_equal(one.values, other.values)


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
