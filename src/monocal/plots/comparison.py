"""Several predictors side by side: a dot for the value of a metric, a line for its interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..metrics import METRICS, Evaluation, evaluate
from ._axes import AFTER, panels, tidy

_NAMES = {"nll": "NLL, nats per row", "brier": "Brier score", "ece": "ECE", "mce": "largest gap of a bin"}


def in_words(metric: str) -> str:
    """A metric as the label of an axis."""
    name = _NAMES.get(metric, metric.replace("_", " ").replace("ece", "ECE").replace("kde", "KDE"))
    return f"{name} ({'higher' if METRICS[metric].higher_is_better else 'lower'} is better)"


class ComparisonDisplay:
    """Metrics of several predictors on the same rows.

    Parameters
    ----------
    evaluations : dict of str to Evaluation
        By the name of the predictor, all with the same metrics.

    Attributes
    ----------
    ax_ : ndarray of Axes
        One a metric.
    figure_ : Figure

    Examples
    --------
    >>> import monocal as mc
    >>> from monocal.plots import ComparisonDisplay
    >>> data = mc.data.synthetic(1000, 5)
    >>> ts, mcct = (c.fit(data.values, data.labels) for c in (mc.TemperatureScaling(), mc.MCCT()))
    >>> display = ComparisonDisplay.from_estimator({"TS": ts, "MCCT": mcct}, data.values, data.labels, n_boot=20)
    >>> display.order("nll")[0] in ("TS", "MCCT")
    True
    """

    figure_: Any
    ax_: Any

    def __init__(self, evaluations: Mapping[str, Evaluation]):
        if not evaluations:
            raise InputError("evaluations: expected at least one, by the name of its predictor")
        self.evaluations = dict(evaluations)

    @classmethod
    def from_estimator(
        cls,
        estimators: Mapping[str, Any],
        X: Any,
        y: Any,
        *,
        metrics: Sequence[str] = ("nll", "ece"),
        n_boot: int = 200,
        seed: int | None = 0,
        sample_weight: Any = None,
    ) -> ComparisonDisplay:
        """From fitted estimators by name; see `from_predictions`."""
        predictions = {name: estimator.predict_proba(X) for name, estimator in estimators.items()}
        return cls.from_predictions(
            y, predictions, metrics=metrics, n_boot=n_boot, seed=seed, sample_weight=sample_weight
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_prob: Mapping[str, Any],
        *,
        metrics: Sequence[str] = ("nll", "ece"),
        n_boot: int = 200,
        seed: int | None = 0,
        sample_weight: Any = None,
    ) -> ComparisonDisplay:
        """From labels (n,) and probabilities (n, m) by name."""
        return cls(
            {
                name: evaluate(
                    probs,
                    y_true,
                    metrics=list(metrics),
                    n_boot=n_boot,
                    seed=seed,
                    sample_weight=sample_weight,
                )
                for name, probs in y_prob.items()
            }
        )

    def order(self, metric: str) -> list[str]:
        """Names, the best by this metric first."""
        sign = -1 if METRICS[metric].higher_is_better else 1
        return sorted(self.evaluations, key=lambda name: sign * self.evaluations[name][metric].value)

    def plot(self, ax: Any = None, **kwargs: Any) -> ComparisonDisplay:
        """Draw into a new figure, or into the space of ``ax``; the best by the first metric on top.

        Keyword arguments go to the marks.
        """
        metrics = list(next(iter(self.evaluations.values())).estimates)
        names = self.order(metrics[0])[::-1]
        room = 0.07 * max(map(len, names))  # inches of the longest name
        size = (4.0, 1.2 + 0.4 * len(names))
        self.figure_, [axes] = panels(ax, len(metrics), (1.0,), size, room)
        for i, (panel, metric) in enumerate(zip(axes, metrics, strict=True)):
            for place, name in enumerate(names):
                estimate = self.evaluations[name][metric]
                if estimate.low is not None and estimate.high is not None and np.isfinite(estimate.high):
                    panel.plot(
                        [estimate.low, estimate.high], [place, place], color=AFTER, linewidth=3, alpha=0.35
                    )
                if np.isfinite(estimate.value):
                    panel.plot(
                        estimate.value, place, **{"marker": "D", "color": AFTER, "markersize": 5, **kwargs}
                    )
            panel.set(xlabel=in_words(metric), ylim=(-0.6, len(names) - 0.4))
            panel.set_yticks(range(len(names)), names if i == 0 else [""] * len(names))
            tidy(panel)
        self.ax_ = np.array(axes)
        return self
