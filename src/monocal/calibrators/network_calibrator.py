"""What the calibrators that are networks share: a start at temperature scaling, training, and results measured from the top."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from ..arrays import ordered_softmax
from ..errors import require
from ..inputs.validation import check_choice
from ..parallel import map_rows
from . import state
from .base import Calibrator
from .depth_features import lift, mask
from .network import Schedule, check_hidden, classification_loss, new_layers, train
from .temperature import best_temperature

# The sizes of all layers, and the calibrated logits of rows, by their numbers, for torch layers.
Prepared = tuple[tuple[int, ...], Callable[[list[Any], Any], Any]]


class NetworkCalibrator(Calibrator):
    """Base: a family says what the network sees and what its output does, as tensors and in numpy."""

    preserves_order = True
    preserves_top1 = True
    extras = ("torch",)

    loss: str
    learning_rate: float
    max_epochs: int
    patience: int
    validation: float
    batch_size: int
    seed: int

    _state: ClassVar[state.Rules] = {
        "temperature_": state.positive,
        "layers_": state.layers,
        "scale_": state.positive,
        "history_": None,
        "n_iter_": None,
    }

    @abstractmethod
    def _scaled(self, logits: np.ndarray) -> np.ndarray:
        """Calibrated logits with the largest at 0."""

    def _train(
        self,
        logits: np.ndarray,
        labels: np.ndarray,
        weight: np.ndarray | None,
        hidden: Any,
        prepare: Callable[[Any, np.ndarray, Any], Prepared],
        from_zero: bool = True,
    ) -> None:
        """Set ``temperature_``, ``layers_``, ``history_`` and ``n_iter_``; ``scale_`` is 1 as yet.

        ``prepare(torch, logits, hidden)`` is called when the temperature is known. ``from_zero``: the network starts at 0.
        """
        check_hidden(hidden)
        check_choice(self.loss, "loss", ("nll", "mse"))
        schedule = Schedule(
            self.learning_rate, self.max_epochs, self.patience, self.validation, self.batch_size, self.seed
        )
        schedule.check()
        torch = require("torch", "torch")
        random = np.random.default_rng(self.seed)
        rows = schedule.split(len(labels), random)
        # The start must not have seen the validation rows, or nothing would seem to improve on it.
        self.temperature_ = best_temperature(
            logits[rows[0]], labels[rows[0]], None if weight is None else weight[rows[0]]
        )
        truth = torch.as_tensor(labels)
        w = torch.as_tensor((np.ones(len(labels)) if weight is None else weight).astype(np.float32))
        sizes, calibrated = prepare(torch, logits, hidden)

        def loss(layers: list[Any], rows: Any) -> Any:
            return classification_loss(calibrated(layers, rows), truth[rows], w[rows], self.loss)

        layers = new_layers(sizes, random, last_zero=from_zero)
        self.layers_, self.history_, self.n_iter_ = train(
            layers, loss, rows, logits.shape[1], schedule, random
        )
        self.scale_ = 1.0

    def _calibrate(self, logits: np.ndarray) -> np.ndarray:
        return map_rows(lambda z: lift(self._scaled(z), z), logits)

    def _probabilities(self, logits: np.ndarray) -> np.ndarray:
        return map_rows(lambda z: ordered_softmax(mask(self._scaled(z), z)), logits)
