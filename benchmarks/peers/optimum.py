"""Did a method reach the minimum of its own objective? Start where it stopped and see how far double precision still gets.

    excess = (F(theta) - F*) / F*

A temperature is a convex problem in one variable, so ``F*`` is exact: the root of the derivative. An affine map is one too,

    F(W, b) = mean_n [ log sum_j exp f_nj - f_n,label ] + sum pull (W - centre)^2 + sum bias_pull b^2,   f = W x + b,

in many variables: L-BFGS goes on from the method's own parameters, and what it gains is a lower bound of the excess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

ENOUGH = 1e-6  # relative excess at which an optimum counts as reached
_WORK = 2e9  # multiplications that the continuation of an affine map may take in all
_CLEAR = 0.1  # relative excess beyond which nothing more is learnt by going on
_BLOCK = 2**20


def temperature_excess(logits: np.ndarray, labels: np.ndarray, scale: float) -> float:
    """Of the mean NLL of ``softmax(scale z)``."""
    from scipy.optimize import brentq

    if not np.isfinite(scale) or scale <= 0:
        return float("inf")
    reach = np.log(2.0)
    while (
        _slope(logits, labels, scale * np.exp(-reach)) > 0
        or _slope(logits, labels, scale * np.exp(reach)) < 0
    ):
        reach *= 2.0
        if reach > 30.0:  # the optimum is no temperature at all
            return float("nan")
    best = np.exp(
        brentq(
            lambda u: _slope(logits, labels, np.exp(u)),
            np.log(scale) - reach,
            np.log(scale) + reach,
            xtol=1e-6,
        )
    )
    least = _nll(logits, labels, best)
    return max(0.0, _nll(logits, labels, scale) - least) / least


def _blocks(logits: np.ndarray, labels: np.ndarray) -> Any:
    step = max(1, _BLOCK // logits.shape[1])
    for start in range(0, len(labels), step):
        z = logits[start : start + step].astype(np.float64)
        z -= z.max(axis=1, keepdims=True)
        yield z, z[np.arange(len(z)), labels[start : start + step]]


def _nll(logits: np.ndarray, labels: np.ndarray, scale: float) -> float:
    total = sum(
        (np.log(np.exp(scale * z).sum(axis=1)) - scale * at).sum() for z, at in _blocks(logits, labels)
    )
    return float(total) / len(labels)


def _slope(logits: np.ndarray, labels: np.ndarray, scale: float) -> float:
    total = 0.0
    for z, at in _blocks(logits, labels):
        e = np.exp(scale * z)
        total += float((np.vecdot(e, z) / e.sum(axis=1) - at).sum())
    return total / len(labels)


@dataclass(frozen=True)
class Affine:
    """An affine map and its objective: ``coef`` (m,) or (m, m), ``bias`` (m,) or None where the family has none."""

    x: np.ndarray
    coef: np.ndarray
    bias: np.ndarray | None
    pull: np.ndarray | float = 0.0
    bias_pull: np.ndarray | float = 0.0
    centre: np.ndarray | float = 0.0


def affine_excess(problem: Affine, labels: np.ndarray) -> float:
    """A lower bound; NaN where there is too much data to go on."""
    import torch
    from scipy.optimize import minimize

    x = torch.from_numpy(np.ascontiguousarray(problem.x, dtype=np.float64))
    steps = int(_WORK / (problem.coef.size * len(x)))
    if steps < 10:
        return float("nan")
    y = torch.from_numpy(labels)
    pull, bias_pull, centre = (
        torch.as_tensor(np.asarray(v, dtype=np.float64))
        for v in (problem.pull, problem.bias_pull, problem.centre)
    )
    shape, cut = problem.coef.shape, problem.coef.size
    start = problem.coef.ravel() if problem.bias is None else np.r_[problem.coef.ravel(), problem.bias]

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        t = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
        coef, bias = t[:cut].reshape(shape), t[cut:] if problem.bias is not None else torch.zeros(())
        f = (x @ coef.T if coef.ndim == 2 else x * coef) + bias
        value = torch.nn.functional.cross_entropy(f, y)
        value = value + (pull * (coef - centre) ** 2).sum() + (bias_pull * bias**2).sum()
        value.backward()
        return value.item(), t.grad.numpy()

    first = objective(start)[0]

    def stop_when_clear(intermediate_result: Any) -> None:
        if first - intermediate_result.fun > _CLEAR * abs(intermediate_result.fun):
            raise StopIteration

    result = minimize(
        objective,
        start.astype(np.float64),
        jac=True,
        method="L-BFGS-B",
        callback=stop_when_clear,
        options={"maxiter": min(steps, 200), "maxfun": min(steps, 200), "ftol": 1e-15, "gtol": 1e-10},
    )
    return max(0.0, first - result.fun) / max(abs(result.fun), 1e-300)


# The problems that the libraries solve, at the parameters where they stopped.


def of_structured(model: Any, logits: np.ndarray, inputs: np.ndarray, labels: np.ndarray) -> Affine:
    """probmetrics' SVS and SMS: ridge towards the temperature scaling that comes before them."""
    from probmetrics.utils import multiclass_probs_to_logits

    n, m = inputs.shape
    x = multiclass_probs_to_logits(model.ts_.predict_proba(inputs))
    if hasattr(model, "v_"):
        return Affine(x, model.v_, model.b_, pull=m / n, bias_pull=m / n, centre=1.0)
    pull = np.full((m, m), m * (m - 1) / n)
    np.fill_diagonal(pull, m / n)
    return Affine(x, model.W_[:, :-1], model.W_[:, -1], pull, bias_pull=m / n, centre=np.eye(m))


def of_scaler(model: Any, logits: np.ndarray, inputs: Any, labels: np.ndarray) -> Affine:
    """torch-uncertainty's scalers: no penalty but for the Dirichlet one's off-diagonal and intercept."""
    from scipy.special import log_softmax

    coef, *rest = [p.detach().numpy() for p in model.inv_temperature]
    bias = rest[0] if rest else None
    if not hasattr(model, "lambda_reg"):
        return Affine(logits, coef, bias)
    m = len(coef)
    pull = np.full((m, m), model.lambda_reg / (m * (m - 1)))
    np.fill_diagonal(pull, 0.0)
    return Affine(log_softmax(logits, axis=1), coef, bias, pull, bias_pull=model.mu_reg / m)
