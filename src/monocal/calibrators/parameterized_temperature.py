"""Parameterized temperature scaling (Tomani, Cremers, Buettner, 2022): a network gives every sample its temperature.

    f = z / T(z),      T(z) = T_0 exp(network(10 largest logits, sorted)).

A row is divided by one positive number, so its order stands. ``T_0`` is the temperature of temperature scaling, where training
starts; logits are measured from the largest, so a shift changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import to_numpy
from ..inputs.validation import check_number
from ..parallel import map_rows
from .depth_features import depths, squeeze
from .network import forward, positive_factor
from .network_calibrator import NetworkCalibrator, Prepared
from .temperature import last_scale


class ParameterizedTemperatureScaling(NetworkCalibrator):
    """PTS: a temperature for every sample, from its largest logits. Needs torch to fit (``monocal[torch]``), not to predict.

    Parameters
    ----------
    top_k : int
        How many of the largest logits the network sees; all of them where there are fewer classes.
    hidden : tuple of int
        Sizes of the hidden layers.
    loss : {"nll", "mse"}
    learning_rate : float
        Of Adam, at the start.
    max_epochs : int
    patience : int
        Checks of the validation loss, one each 25 steps, without improvement before the learning rate is halved; after
        the third time training ends.
    validation : float
        Share of the rows held out to decide when to stop. 0: train for ``max_epochs`` on all rows.
    batch_size : int
    published : bool
        The published network: raw logits in, ``T = |network|``, from a random start. See `as_published`.
    seed : int
    input : {"logits", "probabilities"}
    class_axis : int
        The axis of the classes, as in (N, C, H, W) with 1; results come back in the shape given.
    ignore_index : int or None
        A label that does not count, such as -100 for padding; None: all count.

    Attributes
    ----------
    temperature_ : float
        The common temperature ``T_0``, fitted to the training rows.
    scale_ : float
        One more temperature for the result, fitted to all rows: ``T(z) = T_0 exp(network) / scale_``.
    layers_ : list of ndarray
        ``W_1, b_1, ..., W_L, b_L``.
    history_ : list of float
        Validation losses, one each 25 steps.
    n_iter_ : int
        Steps taken.

    References
    ----------
    Tomani, Cremers, Buettner (2022). Parameterized temperature scaling for boosting the expressive power in post-hoc
    uncertainty calibration. ECCV.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.ParameterizedTemperatureScaling(max_epochs=20).fit(data.values, data.labels)  # needs torch
    >>> cal.preserves_order
    True
    >>> float(cal.predict_proba(data.values[:1]).sum().round(6))
    1.0
    """

    def __init__(
        self,
        *,
        top_k: int = 10,
        hidden: tuple[int, ...] = (16, 16),
        loss: str = "nll",
        learning_rate: float = 0.01,
        max_epochs: int = 1000,
        patience: int = 10,
        validation: float = 0.2,
        batch_size: int = 1000,
        published: bool = False,
        seed: int = 0,
        input: str = "logits",
        class_axis: int = -1,
        ignore_index: int | None = None,
    ):
        self.top_k = top_k
        self.hidden = hidden
        self.loss = loss
        self.learning_rate = learning_rate
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation = validation
        self.batch_size = batch_size
        self.published = published
        self.seed = seed
        self.input = input
        self.class_axis = class_axis
        self.ignore_index = ignore_index

    @classmethod
    def as_published(cls, seed: int = 0) -> ParameterizedTemperatureScaling:
        """Two layers of 5 on raw logits, squared error, 200 epochs at learning rate 5e-5: far from trained."""
        return cls(
            hidden=(5, 5),
            loss="mse",
            learning_rate=5e-5,
            max_epochs=200,
            validation=0.0,
            published=True,
            seed=seed,
        )

    def _fit(self, logits: np.ndarray, labels: np.ndarray, weight: np.ndarray | None) -> None:
        check_number(self.top_k, "top_k", least=1, whole=True)
        self._train(logits, labels, weight, self.hidden, self._prepare, from_zero=not self.published)
        if not self.published:
            self.scale_ = last_scale(self._calibrate(logits), labels, weight)

    def _prepare(self, torch: Any, logits: np.ndarray, hidden: Any) -> Prepared:
        features = torch.as_tensor(map_rows(self._features, logits))
        # Cut, and 0 where masked: an infinite product would have no gradient.
        down = map_rows(lambda z: np.minimum(depths(z) / self.temperature_, 1e4).astype(np.float32), logits)
        down[np.isinf(logits)] = 0.0
        down = torch.as_tensor(down)
        masked = torch.as_tensor(np.isinf(logits))

        def calibrated(layers: list[Any], rows: Any) -> Any:
            relative = self._relative(forward(features[rows], layers))
            return (-down[rows] / relative).masked_fill(masked[rows], -np.inf)

        return (features.shape[1], *hidden, 1), calibrated

    def _features(self, logits: np.ndarray) -> np.ndarray:
        """What the network sees (n, k): the depths of the largest logits below the top, or the logits as published."""
        k = min(self.top_k, logits.shape[1])
        top = -np.sort(np.partition(-logits, k - 1, axis=1)[:, :k], axis=1)
        if self.published:
            return np.clip(np.where(np.isinf(top), logits.max(axis=1, keepdims=True), top), -1e6, 1e6).astype(
                np.float32
            )
        return squeeze(depths(top), self.temperature_)

    def _relative(self, output: Any) -> Any:
        """``T / T_0`` (n, 1) from the network's output, numpy or torch."""
        if self.published:
            return abs(output).clip(min=1e-12, max=1e12) / self.temperature_
        return positive_factor(output)

    def temperatures(self, X: Any) -> np.ndarray:
        """The temperature (n,) of each row."""
        return self._temperatures(to_numpy(self._logits(X)))[:, 0]

    def _temperatures(self, logits: np.ndarray) -> np.ndarray:
        output = forward(self._features(logits).astype(np.float64), self.layers_)
        return self._relative(output) * (self.temperature_ / self.scale_)

    def _scaled(self, logits: np.ndarray) -> np.ndarray:
        """Negative depths over temperatures: calibrated logits with the largest at 0."""
        d = depths(logits)
        with np.errstate(over="ignore"):
            d *= -(1.0 / self._temperatures(logits)).astype(d.dtype)
        return d
