"""One function for every class: calibrate each column of probabilities alone, then make the rows sum to one.

    q_j = g_j(p_j) / sum_k g_k(p_k).

``g_j`` is a step function or a broken line. Rows in which every ``g_j`` is 0 keep their given probabilities. The classes have
functions of their own, so their order is not kept.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np

from ..parallel import map_rows, parallel_map
from . import state
from .probability_map import ProbabilityCalibrator, normalise, softmax


class OneVsRestCalibrator(ProbabilityCalibrator):
    """Base: a family fits one class (`_fit_class`) to a step function of its probability.

    Attributes
    ----------
    edges_ : list of m ndarrays
        Interior bin edges of each class; a bin holds its upper edge.
    values_ : list of m ndarrays
        Calibrated probability in each bin, one more than edges.
    """

    edges_: list[np.ndarray]
    values_: list[np.ndarray]

    _state: ClassVar[state.Rules] = {
        "edges_": state.rising,
        "values_": state.probabilities_at("edges_", 1),
    }

    @abstractmethod
    def _fit_class(self, p: np.ndarray, hit: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Edges and values from probabilities (n,), whether the class was the label (n,), and weights (n,)."""

    def _scores(self, logits: np.ndarray) -> np.ndarray:
        """What is binned: the probabilities (n, m) of a block of logits."""
        return softmax(logits)

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        weight = np.ones(len(labels)) if weight is None else weight
        scores = map_rows(self._scores, logits)
        masked = np.isinf(logits).any()

        def one(k: int) -> tuple[np.ndarray, np.ndarray]:
            rows = ~np.isinf(logits[:, k]) if masked else slice(None)
            score = scores[rows, k].astype(np.float64)
            if not len(score):  # never available: nothing to learn, and nothing that will be used
                return np.zeros(0), np.zeros(1)
            return self._fit_class(score, labels[rows] == k, weight[rows])

        functions = parallel_map(one, range(logits.shape[1]))
        self.edges_ = [edges for edges, _ in functions]
        self.values_ = [values for _, values in functions]

    def _remap(self, logits: np.ndarray) -> np.ndarray:
        scores = self._scores(logits)
        q = np.empty_like(scores)
        for k, (edges, values) in enumerate(zip(self.edges_, self.values_, strict=True)):
            q[:, k] = values[np.searchsorted(edges, scores[:, k])]
        return normalise(q, scores, ~np.isinf(logits))


def bin_sums(p: np.ndarray, edges: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """Sums of each of ``values`` (n,) over the bins."""
    index = np.searchsorted(edges, p)
    return [np.bincount(index, value, len(edges) + 1) for value in values]
