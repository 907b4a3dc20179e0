"""Bayesian binning into quantiles (Naeini, Cooper, Hauskrecht, 2015): average over many histograms.

    g(p) = sum_B score_B theta_B(bin of p) / sum_B score_B

over equal-mass histograms with ``B`` bins, ``B`` from ``n^(1/3) / 10`` to ``10 n^(1/3)``. A bin with ``N_b`` samples of which
``k_b`` are hits, and a beta prior of strength ``2 / B`` at its middle, ``alpha_b + beta_b = 2 / B``, has

    theta_b = (k_b + alpha_b) / (N_b + 2 / B)
    log score_B = sum_b log [ G(2/B) / G(N_b + 2/B) * G(k_b + alpha_b) / G(alpha_b) * G(N_b - k_b + beta_b) / G(beta_b) ].

The average of step functions is a step function, and that is what is kept.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from ..edges import halfway
from .one_vs_rest import OneVsRestCalibrator

_PRIOR = 2.0  # strength of the beta priors of a histogram, all bins together
_NEGLIGIBLE = 1e-12  # histograms that weigh less than this are left out


class BayesianBinning(OneVsRestCalibrator):
    """BBQ for every class against the rest, normalised.

    Parameters
    ----------
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    edges_, values_ : list of m ndarrays
        The averaged step function of each class.

    Notes
    -----
    Sample weights count as repeats.

    References
    ----------
    Naeini, Cooper, Hauskrecht (2015). Obtaining well calibrated probabilities using Bayesian binning. AAAI.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.BayesianBinning().fit(data.values, data.labels)
    >>> len(cal.values_), cal.preserves_order
    (5, False)
    >>> cal.predict_proba(data.values[:1]).round(2)
    array([[0.01, 0.  , 0.  , 0.99, 0.  ]], dtype=float32)
    """

    def __init__(
        self,
        *,
        input: str = "logits",
        class_axis: int = -1,
        ignore_index: int | None = None,
    ):
        self.input = input
        self.class_axis = class_axis
        self.ignore_index = ignore_index

    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        root = min(float(weight.sum()), 1e5) ** (
            1.0 / 3.0
        )  # beyond that, finer cuts cost much and add nothing
        bins = np.arange(max(1, int(root / 10.0)), int(np.ceil(10.0 * root)) + 1)
        order = np.argsort(p)
        p, weight = p[order], weight[order]
        mass, hits = np.cumsum(weight), np.cumsum(weight * hit[order])
        # All histograms one after the other. Values are cut at equal mass but never between equals, so some bins may be empty:
        # those have score 0 and are never looked up.
        model = np.repeat(np.arange(len(bins)), bins)
        first = np.concatenate([[0], np.cumsum(bins)[:-1]])
        upto = (np.arange(len(model)) - np.repeat(first, bins) + 1) / np.repeat(bins, bins)
        reached = np.searchsorted(mass, mass[-1] * upto * (1.0 - 1e-12))
        cut = np.searchsorted(p, p, side="right")[np.minimum(reached, len(p) - 1)]
        upper = np.where(cut < len(p), halfway(p[cut - 1], p[np.minimum(cut, len(p) - 1)]), 1.0)

        def in_bins(running: np.ndarray) -> np.ndarray:
            total = np.diff(running[cut - 1], prepend=0.0)
            total[first] = running[cut[first] - 1]
            return total

        lower = np.concatenate([[0.0], upper[:-1]])
        lower[first] = 0.0
        theta, score = beta_bins(
            in_bins(mass), in_bins(hits), (lower + upper) / 2.0, _PRIOR / np.repeat(bins, bins)
        )
        score = np.add.reduceat(score, first)
        share = np.exp(score - score.max())
        share /= share.sum()
        # The average of step functions steps wherever one of them does.
        step = np.repeat(share, bins)[1:] * np.diff(theta)
        kept = (upper[:-1] < 1.0) & (model[1:] == model[:-1]) & (np.repeat(share, bins)[1:] > _NEGLIGIBLE)
        edges, place = np.unique(upper[:-1][kept], return_inverse=True)
        values = share @ theta[first] + np.concatenate(
            [[0.0], np.cumsum(np.bincount(place, step[kept], len(edges)))]
        )
        return edges, np.clip(values, 0.0, 1.0)


def beta_bins(
    mass: np.ndarray, hits: np.ndarray, middle: np.ndarray, strength: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Values and log scores of bins with beta priors of ``strength`` at their middles."""
    hits = np.clip(hits, 0.0, mass)  # differences of running sums
    alpha = strength * np.clip(middle, 1e-9, 1.0 - 1e-9)
    beta = strength - alpha
    score = gammaln(hits + alpha) - gammaln(alpha) + gammaln(mass - hits + beta) - gammaln(beta)
    return (hits + alpha) / (mass + strength), score + gammaln(strength) - gammaln(mass + strength)
