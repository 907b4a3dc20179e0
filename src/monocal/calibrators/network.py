"""A small network, and training it until its validation loss stops improving.

    x -> relu(x W_1 + b_1) -> ... -> x W_L + b_L.

Trained with torch (Adam on random batches), kept and applied as plain numpy arrays. All randomness comes from one numpy
generator, so a seed fixes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ..arrays import Array, array_namespace
from ..errors import InputError, require
from ..inputs.validation import check_number

# A factor that a network gives lies between exp(-3) and exp(3).
_REACH = 3.0
# Validation: every so many steps, on at most so many logits.
_EVERY = 25
_VALIDATION_LOGITS = 2**22
# Logits of a batch, at the most.
_BATCH_LOGITS = 2**18


def forward(x: Any, layers: Sequence[Any]) -> Any:
    """The network ``[W_1, b_1, ..., W_L, b_L]`` applied to rows ``x``, numpy or torch."""
    for i in range(0, len(layers) - 2, 2):
        x = (x @ layers[i] + layers[i + 1]).clip(min=0)
    return x @ layers[-2] + layers[-1]


def positive_factor(x: Any) -> Any:
    """``exp(x)``, levelling off at ``exp(-3)`` and ``exp(3)``; 1 at 0."""
    xp = array_namespace(x)
    return xp.exp(_REACH * xp.tanh(x / _REACH))


def new_layers(sizes: Sequence[int], random: np.random.Generator, last_zero: bool = True) -> list[np.ndarray]:
    """Weights uniform in ``+- sqrt(6 / (in + out))``, biases 0; the last layer zero, if the network is to start at 0."""
    layers = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        reach = 0.0 if last_zero and i == len(sizes) - 2 else np.sqrt(6.0 / (a + b))
        layers += [random.uniform(-reach, reach, size=(a, b)).astype(np.float32), np.zeros(b, np.float32)]
    return layers


@dataclass(frozen=True)
class Schedule:
    """How to train.

    With a ``validation`` share of the rows held out: steps until the validation loss has not improved for ``patience``
    checks, then three times again with the learning rate halved, and the best state is kept (the start, if nothing
    beats it). With ``validation=0``: ``max_epochs`` passes over all rows, and the last state.
    """

    learning_rate: float
    max_epochs: int
    patience: int
    validation: float
    batch_size: int
    seed: int

    def check(self) -> None:
        check_number(self.learning_rate, "learning_rate", above=0)
        check_number(self.max_epochs, "max_epochs", least=1, whole=True)
        check_number(self.patience, "patience", least=1, whole=True)
        check_number(self.validation, "validation", least=0)
        check_number(self.batch_size, "batch_size", least=1, whole=True)
        check_number(self.seed, "seed", least=0, whole=True)
        if self.validation >= 1:
            raise InputError(
                f"validation must be a share of the rows, at least 0 and below 1, but is {self.validation}."
            )

    def split(self, n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train on and rows to validate on; too few rows to spare any serve as both."""
        rows = random.permutation(n)
        held_out = int(self.validation * n)
        if held_out == 0:
            return rows, rows
        return rows[held_out:], rows[:held_out]


def check_hidden(hidden: Any) -> None:
    """Sizes of the hidden layers."""
    if not isinstance(hidden, (tuple, list)):
        raise InputError(
            f"hidden must be a tuple of layer sizes such as (16, 16), but is {type(hidden).__name__}."
        )
    for size in hidden:
        check_number(size, "hidden: a layer size", least=1, most=10_000, whole=True)


def classification_loss(f: Array, labels: Array, weight: Any, loss: str) -> Array:
    """Weighted mean of NLL or Brier score of torch logits (n, m)."""
    import torch

    if loss == "nll":
        each = torch.nn.functional.cross_entropy(f, labels, reduction="none")
    else:
        p = torch.softmax(f, dim=1)
        each = (p * p).sum(dim=1) - 2.0 * p.gather(1, labels[:, None])[:, 0] + 1.0
    return (weight * each).sum() / weight.sum()


def train(
    layers: list[np.ndarray],
    loss: Callable[[list[Any], Any], Any],
    rows: tuple[np.ndarray, np.ndarray],
    n_classes: int,
    schedule: Schedule,
    random: np.random.Generator,
) -> tuple[list[np.ndarray], list[float], int]:
    """Minimise ``loss(layers, rows)``, a torch scalar for torch layers and row numbers.

    ``rows`` are those to train on and those to validate on (`Schedule.split`).

    Returns
    -------
    layers : list of ndarray
    history : list of float
        Validation losses, one each 25 steps; empty without validation.
    n_steps : int
    """
    torch = require("torch", "torch")
    training = rows[0]
    check = torch.as_tensor(rows[1][: max(1, _VALIDATION_LOGITS // n_classes)])
    batch = min(schedule.batch_size, max(16, _BATCH_LOGITS // n_classes), len(training))
    per_epoch = -(-len(training) // batch)
    tensors = [torch.tensor(layer, requires_grad=True) for layer in layers]
    optimiser = torch.optim.Adam(tensors, lr=schedule.learning_rate)

    def state() -> list[np.ndarray]:
        return [t.detach().numpy().copy() for t in tensors]

    def validate() -> float:
        with torch.no_grad():
            return float(loss(tensors, check))

    history: list[float] = [validate()] if schedule.validation else []
    best, since, halvings = state(), 0, 0
    order = training
    for step in range(schedule.max_epochs * per_epoch):
        place = step % per_epoch
        if place == 0:
            order = random.permutation(training)
        optimiser.zero_grad()
        loss(tensors, torch.as_tensor(order[place * batch : (place + 1) * batch])).backward()
        optimiser.step()
        if not schedule.validation or (step + 1) % _EVERY:
            continue
        history.append(validate())
        if history[-1] <= min(history[:-1]):
            best, since = state(), 0
            continue
        since += 1
        if since >= schedule.patience:
            if halvings == 3:
                break
            halvings, since = halvings + 1, 0
            with torch.no_grad():
                for tensor, value in zip(tensors, best, strict=True):
                    tensor.copy_(torch.as_tensor(value))
            optimiser = torch.optim.Adam(tensors, lr=schedule.learning_rate / 2**halvings)
    return (best if schedule.validation else state()), history, step + 1
