"""How far a flat tail leads a fit on the k largest logits astray, on rows whose tail falls like a power of the rank.

    python benchmarks/top_k_tail.py

Labels are drawn at temperature 1.4. The fit on all logits finds it; the fits on `TopK` rows see k logits and the mass of all
others.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp, softmax

import monocal as mc
import pages

TRUE, N, M = 1.4, 1000, 32_000


def rows(exponent: float, seed: int, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    z = -exponent * np.log(np.arange(1, M + 1)) + 0.7 * rng.standard_normal((n, M))
    z[:, :8] += 3 * rng.random((n, 8))
    labels = np.empty(n, dtype=np.int64)
    for i in range(n):
        labels[i] = rng.choice(M, p=softmax(z[i] / TRUE))
    return z, labels


def largest(z: np.ndarray, k: int) -> mc.TopK:
    ids = np.argpartition(-z, k, axis=1)[:, :k]
    return mc.TopK(np.take_along_axis(z, ids, axis=1), ids, logsumexp(z, axis=1), M)


def main() -> None:
    pages.parser_of(__doc__).parse_args()
    print(
        "| power of the rank | mass below the 20 largest | k | temperature | NLL of all logits at it, less the best |"
    )
    print("|---:|---:|---:|---:|---:|")
    for exponent in (1.0, 1.5, 2.5):
        z, y = rows(exponent, seed=0)
        test, truth = rows(exponent, seed=1, n=1000)
        best = mc.TemperatureScaling().fit(z, y)
        mass = 1 - softmax(z, axis=1)[np.arange(N)[:, None], largest(z, 20).ids].sum(axis=1).mean()
        reference = -best.score(test, truth)
        print(f"| {exponent} | {mass:.2f} | all | {best.temperature_:.3f} | |")
        for k in (5, 20, 100):
            temperature = mc.TemperatureScaling().fit(largest(z, k), y).temperature_
            at_it = logsumexp(test / temperature, axis=1) - test[np.arange(len(test)), truth] / temperature
            print(f"| {exponent} | {mass:.2f} | {k} | {temperature:.3f} | {at_it.mean() - reference:+.4f} |")


if __name__ == "__main__":
    main()
