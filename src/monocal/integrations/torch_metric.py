"""Metrics of monocal as a torchmetrics metric: for training loops, Lightning, and many processes.

    update(preds, target)     state += sums of these rows
    compute()                 metrics of the state, which has been added up over processes

The state is one vector of fixed size (about 0.3 MB and 640 bytes a class), whatever the number of rows: an epoch of any length
costs the same, and metrics of several processes are those of all rows, not a mean of means.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError, MissingExtraError
from ..inputs.validation import check_choice, check_count
from ..metrics import METRICS, Evaluator
from ..metrics.functions import Statistics
from ..metrics.table import check_available, chosen

try:
    import torch
    from torchmetrics import Metric
except ImportError as error:
    raise MissingExtraError(
        "torchmetrics is needed for this and is not installed: run  pip install torchmetrics"
    ) from error


class CalibrationMetric(Metric):
    """One or more metrics of monocal over batches.

    Parameters
    ----------
    num_classes : int
    metrics : str or sequence of str
        Names of `monocal.metrics.METRICS` that add over batches, those whose ``merges`` is true.
    input : {"probabilities", "logits"}
        What ``preds`` are; logits get a softmax.
    class_axis : int
        Axis of the classes in ``preds``; 1 for images (N, C, H, W).
    ignore_index : int, optional
        A label that does not count.
    n_bins, top_k
        As in `monocal.evaluate`.
    **kwargs
        Of ``torchmetrics.Metric``.

    Examples
    --------
    >>> import torch
    >>> from monocal.integrations.torch_metric import CalibrationMetric
    >>> metric = CalibrationMetric(num_classes=3, metrics=["nll", "ece"], input="logits")
    >>> metric.update(torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 2]))
    >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
    {'nll': 0.895, 'ece': 0.395}
    """

    is_differentiable = False
    full_state_update = False
    totals: torch.Tensor

    def __init__(
        self,
        num_classes: int,
        metrics: Any = ("nll", "ece"),
        *,
        input: str = "probabilities",
        class_axis: int = -1,
        ignore_index: int | None = None,
        n_bins: int = 15,
        top_k: int = 5,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_choice(input, "input", ("probabilities", "logits"))
        self.num_classes = check_count(num_classes, "num_classes", least=2)
        self.names = chosen(metrics)
        apart = [name for name in self.names if not METRICS[name].merges]
        if apart:
            raise InputError(
                f"metrics: {', '.join(apart)} need all rows at once. Collect the probabilities and use monocal.evaluate."
            )
        check_available(self.names, self.num_classes)
        self.single = isinstance(metrics, str)
        self.input, self.class_axis, self.ignore_index = input, class_axis, ignore_index
        self.options = {"n_bins": n_bins, "top_k": top_k}
        size = len(self._nothing().pack()) + 1  # and the number of rows
        self.add_state("totals", torch.zeros(size, dtype=torch.float64), dist_reduce_fx="sum")

    @property
    def higher_is_better(self) -> bool | None:
        """Of a single metric; what model checkpoints are chosen by."""
        return METRICS[self.names[0]].higher_is_better if self.single else None

    def update(self, preds: Any, target: Any) -> None:
        """Add a batch of probabilities or logits, (n, m) or with more axes, and labels; one without rows adds nothing."""
        p = torch.as_tensor(preds).detach()
        axes = range(-p.ndim, p.ndim)
        if p.ndim < 2 or self.class_axis not in axes or p.shape[self.class_axis] != self.num_classes:
            raise InputError(
                f"preds: expected {self.num_classes} classes in axis {self.class_axis}, got shape {tuple(p.shape)}."
            )
        if p.numel() == 0:
            return
        if self.input == "logits":
            p = torch.softmax(p.double(), dim=self.class_axis)
        part = Evaluator(**self.options)
        part.update(p, target, class_axis=self.class_axis, ignore_index=self.ignore_index)
        sums = np.append(part.sums.pack(), part.n_samples)
        self.totals += torch.as_tensor(sums, device=self.totals.device)

    def compute(self) -> Any:
        """A tensor for a single name, a dict of tensors by name for several; nan of batches that held no rows."""
        totals = self.totals.detach().cpu().numpy()
        if totals[-1] == 0 and not self._update_count:
            raise InputError("compute: no rows were seen yet. Call update(preds, target) first.")
        # Batches without rows give NaN: with an error here, `forward` would lose what it has seen before.
        sums = self._nothing().unpack(totals[:-1]) if totals[-1] > 0 else None
        result = {}
        for name in self.names:
            value = float("nan") if sums is None else METRICS[name].value(sums)
            result[name] = torch.tensor(value, dtype=torch.float32, device=self.totals.device)
        return result[self.names[0]] if self.single else result

    def _nothing(self) -> Statistics:
        """The sums of no rows."""
        row = np.full((1, self.num_classes), 1 / self.num_classes)
        return Evaluator(**self.options).update(row, [0], [0.0]).sums
