"""Stages or one fit? Class weights and rank atoms together in one convex objective, beside one after the other.

    python benchmarks/joint_fit.py [--data ../shared/logits] [--sets NAME ...] [--sizes 100 300 1000]

The joint fit minimises over the cone of rank atoms and the ridge of structured vector scaling at once,

    NLL( sum_a c_a atom_a(z) + v x(z) + b ) + penalty . c + s m / n (|v|^2 + |b|^2),      c >= 0,

with the penalties that `MCCT` and `StructuredScaling(kind="vector", shrinkage=s)` have. It is a prototype: dense, by L-BFGS-B.
Only calibration parts are read: fits on draws of their rows are judged on others of their rows. Prints a Markdown table of
mean NLL.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

import monocal as mc
import pages
from command_line import add_logits, parser_of
from monocal import data

SETS = ["mmlu_mistral-7b", "text_agnews_gpt2", "netcal_cifar10_lenet-5"]
STRENGTHS = (1.0, 10.0)
SHRINKAGE = 5.0  # the default of MCCT
JUDGED = 3000


def atoms(z: np.ndarray) -> np.ndarray:
    """Scales and biases from each rank on, (atoms, n, m)."""
    rank = np.argsort(np.argsort(z, axis=1, kind="stable"), axis=1, kind="stable")
    above_lowest = z - z.min(axis=1, keepdims=True)
    starts = range(z.shape[1])
    scales = [np.where(rank >= s, above_lowest, 0.0) for s in starts]
    return np.stack(scales + [(rank >= s).astype(float) for s in starts[1:]])


def joint(z: np.ndarray, y: np.ndarray, strength: float) -> Callable[[np.ndarray], np.ndarray]:
    """The fitted map, from logits to logits."""
    n, m = z.shape
    temperature = mc.TemperatureScaling().fit(z, y).temperature_
    floor = 1.0 / (n + 1.0)

    def features(z: np.ndarray) -> np.ndarray:
        return np.log((1 - floor) * softmax(z / temperature, axis=1) + floor / m)

    x, dictionary, p = features(z), atoms(z), softmax(z / temperature, axis=1)
    variance = ((p * dictionary**2).sum(axis=2) - (p * dictionary).sum(axis=2) ** 2).mean(axis=1)
    penalty = SHRINKAGE / n * np.sqrt(np.maximum(variance, 1e-12))
    penalty[0] = 0.0
    k, ridge, at_label = len(dictionary), strength * m / n, (np.arange(n), y)

    def moved(theta: np.ndarray, dictionary: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.tensordot(theta[:k], dictionary, 1) + x * theta[k : k + m] + theta[k + m :]

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        log_p = log_softmax(moved(theta, dictionary, x), axis=1)
        residual = np.exp(log_p)
        residual[at_label] -= 1.0
        residual /= n
        own = theta[k:]
        value = -log_p[at_label].mean() + penalty @ theta[:k] + ridge * own @ own
        by_class = np.concatenate([(residual * x).sum(axis=0), residual.sum(axis=0)])
        by_atom = np.tensordot(dictionary, residual, ((1, 2), (0, 1)))
        return float(value), np.concatenate([by_atom + penalty, by_class + 2 * ridge * own])

    start = np.zeros(k + 2 * m)
    start[0] = 1.0 / temperature
    bounds = [(0.0, None)] * k + [(None, None)] * (2 * m)
    options = {"maxiter": 400, "ftol": 1e-10}
    theta = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options).x
    return lambda z: moved(theta, atoms(z), features(z))


def stages(z: np.ndarray, y: np.ndarray, strength: float) -> Callable[[np.ndarray], np.ndarray]:
    first = mc.StructuredScaling(kind="vector", shrinkage=strength)
    return mc.Stacked([first, mc.MCCT()]).fit(z, y).transform


def nll(logits: np.ndarray, labels: np.ndarray) -> float:
    return float(-log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean())


def main() -> None:
    parser = parser_of(__doc__)
    add_logits(parser)
    parser.add_argument("--sets", nargs="+", default=SETS, help="names of sets in the folder")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[100, 300, 1000], help="rows to fit on, beside half of all"
    )
    options = parser.parse_args()
    ways = {f"{way.__name__}, {s:g}": (way, s) for s in STRENGTHS for way in (stages, joint)}
    lines = []
    for place in data.find(options.data):
        if place.name not in options.sets:
            continue
        cal = place.read().cal
        z, y = cal.values.astype(np.float64), cal.labels
        for size in [*options.sizes, len(y) // 2]:
            found: dict[str, list[float]] = {name: [] for name in ("temperature", *ways)}
            for draw in range(6 if size <= 300 else 2):
                order = np.random.default_rng([size, draw]).permutation(len(y))
                fit, rest = order[:size], order[size : size + JUDGED]
                plain = mc.TemperatureScaling().fit(z[fit], y[fit])
                found["temperature"].append(nll(plain.transform(z[rest]), y[rest]))
                for name, (way, strength) in ways.items():
                    found[name].append(nll(way(z[fit], y[fit], strength)(z[rest]), y[rest]))
            lines.append([cal.name, f"{size:,}", *(f"{np.mean(values):.4f}" for values in found.values())])
            print(lines[-1], flush=True)
    print(pages.table(["set", "rows", "temperature", *ways], lines))


if __name__ == "__main__":
    main()
