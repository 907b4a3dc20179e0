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

from .one_vs_rest import OneVsRestCalibrator, equal_mass_cuts, halfway

_PRIOR = 2.0  # strength of the beta priors of a histogram, all bins together
_NEGLIGIBLE = 1e-12  # histograms that weigh less than this are left out


class BayesianBinning(OneVsRestCalibrator):
    """BBQ for every class against the rest, normalised.

    Parameters
    ----------
    input : {"logits", "probabilities"}

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
    """

    def __init__(self, *, input: str = "logits"):
        self.input = input

    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        root = float(weight.sum()) ** (1.0 / 3.0)
        counts = np.arange(max(1, int(root / 10.0)), int(np.ceil(10.0 * root)) + 1)
        order = np.argsort(p)
        p, weight = p[order], weight[order]
        mass, hits = np.cumsum(weight), np.cumsum(weight * hit[order])
        ends = np.searchsorted(p, p, side="right")
        histograms = []
        for bins in counts.tolist():
            cuts = equal_mass_cuts(mass, ends, bins)
            last = np.append(cuts - 1, len(p) - 1)
            edges = halfway(p[cuts - 1], p[cuts])
            in_bins = np.diff(mass[last], prepend=0.0), np.diff(hits[last], prepend=0.0)
            histograms.append((edges, *beta_bins(*in_bins, edges, _PRIOR / bins)))
        score = np.array([h[2] for h in histograms])
        share = np.exp(score - score.max())
        share /= share.sum()
        kept = np.flatnonzero(share > _NEGLIGIBLE)
        edges = np.unique(np.concatenate([histograms[i][0] for i in kept]))
        upper = np.append(edges, np.inf)  # any point of a bin stands for it; bins hold their upper edge
        values = np.zeros(len(upper))
        for i in kept:
            values += share[i] * histograms[i][1][np.searchsorted(histograms[i][0], upper)]
        return edges, values / share[kept].sum()


def beta_bins(
    mass: np.ndarray, hits: np.ndarray, edges: np.ndarray, strength: float
) -> tuple[np.ndarray, float]:
    """Values and log score of a histogram whose bins have beta priors of ``strength`` at their middles."""
    hits = np.clip(hits, 0.0, mass)  # differences of running sums
    middle = np.convolve(np.concatenate([[0.0], edges, [1.0]]), [0.5, 0.5], "valid")
    alpha = strength * np.clip(middle, 1e-9, 1.0 - 1e-9)
    beta = strength - alpha
    score = gammaln(hits + alpha) - gammaln(alpha) + gammaln(mass - hits + beta) - gammaln(beta)
    score += gammaln(strength) - gammaln(mass + strength)
    return (hits + alpha) / (mass + strength), float(score.sum())
