"""Responses of language-model servers, made from rows of log-probabilities in the shapes that servers write."""

import numpy as np
from scipy.special import log_softmax, softmax

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
    result = [None]
    for row, own in zip(z, actual, strict=True):
        falling = np.argsort(-row)
        rank = {int(i): r for r, i in enumerate(falling, start=1)}
        order = [int(own), *map(int, falling[:k])]
        result.append(
            {str(i): {"logprob": float(row[i]), "rank": rank[i], "decoded_token": LETTERS[i]} for i in order}
        )
    return result
