"""Calibrators that are small networks and keep the order of the classes. Needs torch to fit, not to predict.

    PTS (Tomani, Cremers, Buettner, 2022)      f = z / T(z),      T(z) = T_0 exp(network(largest logits, sorted))

    intra order-preserving functions (Rahimi et al., 2020), with d_(1) = 0 <= d_(2) <= ... the depths below the largest logit:
      diag    F(d_j),     F(d) = integral of a positive network of one variable from 0 to d
      oi      sum_{i < j} (d_(i+1) - d_(i)) m_i(sorted depths),      m_i positive, a network of all classes
      op      the same with m_i(depths in their own places): the classes may differ

All start at temperature scaling: positive factors are ``exp(network) / T``, with the network at 0. Networks see depths divided
by a temperature and compressed by ``log(1 + d)``. They are trained with torch (Adam on random batches) until the validation
loss stops improving, and kept and applied as numpy arrays. All randomness comes from one numpy generator, so a seed fixes the
result. Order in floating point: a row is divided by one positive number; ``F`` is a table evaluated by rounded monotone
operations; a running sum of non-negative numbers does not fall, and tied logits add 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy import ndarray

from ..arrays import array_namespace, compute_dtype, ordered_softmax, scatter, sort_with_index, to_numpy
from ..errors import InputError, require
from ..inputs.validation import check_choice, check_number
from ..parallel import map_rows
from . import state
from .base import Calibrator
from .temperature import best_temperature, last_scale

# Beyond any difference of logits that means anything; finite in single precision, with room above.
LARGEST = 1e30
_FINITE = 1e37
# A factor that a network gives lies between exp(-3) and exp(3).
_REACH = 3.0
# Validation: every so many steps, on at most so many logits; and logits of a batch, at the most.
_EVERY, _VALIDATION_LOGITS, _BATCH_LOGITS = 25, 2**22, 2**18
# The table of F: points, and how deep it goes in units of the temperature. Below, F goes on with its last slope; a class so far
# down has a probability of 1e-17 at most.
_POINTS, _DEEPEST = 401, 40.0


def depths(logits: ndarray) -> ndarray:
    """``max z - z`` (n, m) in compute precision, cut at 1e30; what is not available lies at the cut."""
    dtype = compute_dtype(logits)
    with np.errstate(over="ignore"):
        d = logits.max(axis=1, keepdims=True).astype(dtype) - logits.astype(dtype, copy=False)
    return np.minimum(d, LARGEST, out=d)


def squeeze(d: ndarray, temperature: float) -> ndarray:
    """Features between 0 and about 4 from depths: ``log(1 + d / T)``, cut at ``d = 50 T``."""
    return np.log1p(np.minimum(d / temperature, 50.0)).astype(np.float32)


def forward(x: Any, layers: Sequence[Any]) -> Any:
    """The network ``[W_1, b_1, ..., W_L, b_L]`` applied to rows ``x``, numpy or torch."""
    for i in range(0, len(layers) - 2, 2):
        x = (x @ layers[i] + layers[i + 1]).clip(min=0)
    return x @ layers[-2] + layers[-1]


def positive_factor(x: Any) -> Any:
    """``exp(x)``, levelling off at ``exp(-3)`` and ``exp(3)``; 1 at 0."""
    xp = array_namespace(x)
    return xp.exp(_REACH * xp.tanh(x / _REACH))


def new_layers(sizes: Sequence[int], random: Any, last_zero: bool = True) -> list[ndarray]:
    """Weights uniform in ``+- sqrt(6 / (in + out))``, biases 0; the last layer zero, if the network is to start at 0."""
    layers = []
    for i, (a, b) in enumerate(pairwise(sizes)):
        reach = 0.0 if last_zero and i == len(sizes) - 2 else np.sqrt(6.0 / (a + b))
        weights = random.uniform(-reach, reach, size=(a, b))
        layers += [weights.astype(np.float32), np.zeros(b, np.float32)]
    return layers


# The layers and the numbers of rows, as tensors, to the calibrated logits of these rows.
Network = Callable[[list[Any], Any], Any]


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkCalibrator(Calibrator):
    """Base: a family says what the network sees and what its output does, as tensors and in numpy.

    With a ``validation`` share of the rows held out, training goes on until their loss has not improved for ``patience`` checks,
    then three times again with the learning rate halved, and the best state is kept (the start, if nothing beats it). With
    ``validation=0``: ``max_epochs`` passes over all rows, and the last state.
    """

    loss: str = "nll"
    learning_rate: float = 0.01
    max_epochs: int = 1000
    patience: int = 10
    validation: float = 0.2
    batch_size: int = 1000
    seed: int = 0

    preserves_order = True
    preserves_top1 = True
    extras = ("torch",)

    _state: ClassVar[state.Rules] = {
        "temperature_": state.positive,
        "layers_": state.layers,
        "scale_": state.positive,
        "history_": None,
        "n_iter_": None,
    }

    @abstractmethod
    def _scaled(self, logits: ndarray) -> ndarray:
        """Calibrated logits with the largest at 0."""

    @abstractmethod
    def _network(self, torch: Any, logits: ndarray) -> tuple[int, int, Network]:
        """Sizes of input and output of the network, and the calibrated logits it makes, once the temperature is known."""

    def _calibrate(self, logits: ndarray) -> ndarray:
        def lifted(z: ndarray) -> ndarray:
            """Finite numbers from 0 up, in the same order; -inf where not available."""
            f, masked = np.maximum(self._scaled(z), -_FINITE), np.isinf(z)
            f -= np.where(masked, 0.0, f).min(axis=1, keepdims=True).astype(f.dtype)
            f[masked] = -np.inf
            return f

        return map_rows(lifted, logits)

    def _probabilities(self, logits: ndarray) -> ndarray:
        def one(z: ndarray) -> ndarray:
            return ordered_softmax(np.where(np.isinf(z), -np.inf, self._scaled(z)))

        return map_rows(one, logits)

    def _check_training(self, hidden: Any) -> None:
        if not isinstance(hidden, tuple | list):
            raise InputError(f"hidden must be a tuple of layer sizes, but is {type(hidden).__name__}.")
        for size in hidden:
            check_number(size, "hidden: a layer size", least=1, most=10_000, whole=True)
        check_choice(self.loss, "loss", ("nll", "mse"))
        check_number(self.learning_rate, "learning_rate", above=0)
        for name, least in (("max_epochs", 1), ("patience", 1), ("batch_size", 1), ("seed", 0)):
            check_number(getattr(self, name), name, least=least, whole=True)
        check_number(self.validation, "validation", least=0)
        if self.validation >= 1:
            raise InputError(f"validation must be a share of the rows, below 1, but is {self.validation}.")

    def _train(
        self, logits: ndarray, labels: ndarray, weight: Any, hidden: Any, from_zero: bool = True
    ) -> None:
        """Set ``temperature_``, ``layers_``, ``history_`` and ``n_iter_``; ``scale_`` is 1 as yet."""
        self._check_training(hidden)
        torch = require("torch", "torch")
        random = np.random.default_rng(self.seed)
        order = random.permutation(len(labels))
        held_out = int(self.validation * len(labels))
        # Too few rows to spare any serve as both.
        rows, check = (order[held_out:], order[:held_out]) if held_out else (order, order)
        # The start must not have seen the validation rows, or nothing would seem to improve on it.
        share = None if weight is None else weight[rows]
        self.temperature_, self.scale_ = best_temperature(logits[rows], labels[rows], share), 1.0
        truth, masked = torch.as_tensor(labels), torch.as_tensor(np.isinf(logits))
        w = torch.as_tensor((np.ones(len(labels)) if weight is None else weight).astype(np.float32))
        inputs, outputs, network = self._network(torch, logits)

        def loss(layers: list[Any], rows: Any) -> Any:
            f, y = network(layers, rows).masked_fill(masked[rows], -np.inf), truth[rows]
            if self.loss == "nll":
                each = torch.nn.functional.cross_entropy(f, y, reduction="none")
            else:  # the Brier score
                p = torch.softmax(f, dim=1)
                each = (p * p).sum(dim=1) - 2.0 * p.gather(1, y[:, None])[:, 0] + 1.0
            return (w[rows] * each).sum() / w[rows].sum()

        start = new_layers((inputs, *hidden, outputs), random, last_zero=from_zero)
        m = logits.shape[1]
        batch = min(self.batch_size, max(16, _BATCH_LOGITS // m), len(rows))
        check = torch.as_tensor(check[: max(1, _VALIDATION_LOGITS // m)])
        self._descend(torch, loss, start, (rows, check), batch, random)

    def _descend(
        self, torch: Any, loss: Network, start: list[ndarray], parts: Any, batch: int, random: Any
    ) -> None:
        """Adam on random batches of some rows, with a look at the loss of others every 25 steps."""
        rows, check = parts
        per_epoch = -(-len(rows) // batch)
        layers = [torch.tensor(layer, requires_grad=True) for layer in start]
        optimiser = torch.optim.Adam(layers, lr=self.learning_rate)
        history, best, since, halvings, order = [], start, 0, 0, rows

        def validate() -> None:
            with torch.no_grad():
                history.append(float(loss(layers, check)))

        if self.validation:
            validate()
        for step in range(self.max_epochs * per_epoch):
            place = step % per_epoch
            if place == 0:
                order = random.permutation(rows)
            optimiser.zero_grad()
            loss(layers, torch.as_tensor(order[place * batch : (place + 1) * batch])).backward()
            optimiser.step()
            if not self.validation or (step + 1) % _EVERY:
                continue
            validate()
            since += 1
            if history[-1] <= min(history[:-1]):
                best, since = [layer.detach().numpy().copy() for layer in layers], 0
            elif since >= self.patience and halvings == 3:
                break
            elif since >= self.patience:
                halvings, since = halvings + 1, 0
                layers = [torch.tensor(layer, requires_grad=True) for layer in best]
                optimiser = torch.optim.Adam(layers, lr=self.learning_rate / 2**halvings)
        self.layers_ = best if self.validation else [layer.detach().numpy() for layer in layers]
        self.history_, self.n_iter_ = history, step + 1


@dataclass(kw_only=True, eq=False, repr=False)
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
    batch_size, seed : int
    published : bool
        The published network: raw logits in, ``T = |network|``, from a random start. See `as_published`.
    input, class_axis, ignore_index
        See `Calibrator`.

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

    _variants: ClassVar[dict[str, dict[str, Any]]] = {
        "PTS": {},
        "PTS published": {
            "hidden": (5, 5),
            "published": True,
            "loss": "mse",
            "learning_rate": 5e-5,
            "max_epochs": 200,
            "validation": 0.0,
        },
    }

    top_k: int = 10
    hidden: tuple[int, ...] = (16, 16)
    published: bool = False

    @classmethod
    def as_published(cls, seed: int = 0) -> ParameterizedTemperatureScaling:
        """Two layers of 5 on raw logits, squared error, 200 epochs at learning rate 5e-5: far from trained."""
        return cls(seed=seed, **cls._variants["PTS published"])

    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        check_number(self.top_k, "top_k", least=1, whole=True)
        self._train(logits, labels, weight, self.hidden, from_zero=not self.published)
        if not self.published:
            self.scale_ = last_scale(self._calibrate(logits), labels, weight)

    def _network(self, torch: Any, logits: ndarray) -> tuple[int, int, Network]:
        features = torch.as_tensor(map_rows(self._features, logits))
        # Cut, and 0 where masked: an infinite product would have no gradient.
        down = map_rows(lambda z: np.minimum(depths(z) / self.temperature_, 1e4), logits)
        down[np.isinf(logits)] = 0.0
        down = torch.as_tensor(down.astype(np.float32))

        def divided(layers: list[Any], rows: Any) -> Any:
            return -down[rows] / self._relative(forward(features[rows], layers))

        return features.shape[1], 1, divided

    def _features(self, logits: ndarray) -> ndarray:
        """What the network sees (n, k): the depths of the largest logits below the top, or the logits as published."""
        k = min(self.top_k, logits.shape[1])
        top = -np.sort(np.partition(-logits, k - 1, axis=1)[:, :k], axis=1)
        if self.published:
            top = np.where(np.isinf(top), logits.max(axis=1, keepdims=True), top)
            return np.clip(top, -1e6, 1e6).astype(np.float32)
        return squeeze(depths(top), self.temperature_)

    def _relative(self, output: Any) -> Any:
        """``T / T_0`` (n, 1) from the network's output, numpy or torch."""
        if self.published:
            return abs(output).clip(min=1e-12, max=1e12) / self.temperature_
        return positive_factor(output)

    def temperatures(self, X: Any) -> ndarray:
        """The temperature (n,) of each row."""
        return self._temperatures(to_numpy(self._logits(X)))[:, 0]

    def _temperatures(self, logits: ndarray) -> ndarray:
        output = forward(self._features(logits).astype(np.float64), self.layers_)
        return self._relative(output) * (self.temperature_ / self.scale_)

    def _scaled(self, logits: ndarray) -> ndarray:
        d = depths(logits)
        with np.errstate(over="ignore"):
            d *= -(1.0 / self._temperatures(logits)).astype(d.dtype)
        return d


@dataclass(kw_only=True, eq=False, repr=False)
class IntraOrderPreserving(NetworkCalibrator):
    """Monotone networks of the logits. Needs torch to fit (``monocal[torch]``), not to predict.

    Parameters
    ----------
    mode : {"diag", "oi", "op"}
        One increasing function of every logit; multipliers of the gaps that do not depend on which class is which; or
        multipliers that do.
    hidden : tuple of int or None
        Sizes of the hidden layers; None: (64, 64) for "diag", (32,) else.
    loss, learning_rate, max_epochs, patience, validation, batch_size, seed
        See `ParameterizedTemperatureScaling`.
    input, class_axis, ignore_index
        See `Calibrator`.

    Attributes
    ----------
    temperature_ : float
        Of temperature scaling on the training rows, where training started.
    scale_ : float
        Factor of the result, fitted to all rows by temperature scaling.
    layers_ : list of ndarray
        ``W_1, b_1, ..., W_L, b_L``.
    table_ : ndarray of shape (401,)
        ``F`` at depths from 0 to ``40 T``, evenly spaced (mode "diag").
    history_ : list of float
        Validation losses, one each 25 steps.
    n_iter_ : int
        Steps taken.

    References
    ----------
    Rahimi, Shaban, Cheng, Hartley, Boots (2020). Intra order-preserving functions for calibration of multi-class neural
    networks. NeurIPS.

    Examples
    --------
    >>> import monocal as mc
    >>> data = mc.data.synthetic(1000, 5)
    >>> cal = mc.IntraOrderPreserving(max_epochs=20).fit(data.values, data.labels)  # needs torch
    >>> cal.preserves_order
    True
    >>> float(cal.predict_proba(data.values[:1]).sum().round(6))
    1.0
    """

    _variants: ClassVar = {"DIAG": {}, "OI": {"mode": "oi"}, "OP": {"mode": "op"}}
    mode: str = "diag"
    hidden: tuple[int, ...] | None = None
    learning_rate: float = 0.005

    _state: ClassVar[state.Rules] = {"table_": state.rising}

    def _fit(self, logits: ndarray, labels: ndarray, weight: ndarray | None) -> None:
        check_choice(self.mode, "mode", ("diag", "oi", "op"))
        default = (64, 64) if self.mode == "diag" else (32,)
        self._train(logits, labels, weight, default if self.hidden is None else self.hidden)
        if self.mode == "diag":
            self.table_ = np.maximum.accumulate(_integral(np, self.layers_, np.float64))
        self.scale_ = last_scale(self._calibrate(logits), labels, weight)

    def _network(self, torch: Any, logits: ndarray) -> tuple[int, int, Network]:
        if self.mode == "diag":
            # Cells and places within them, small; widened batch by batch.
            cell = torch.as_tensor(map_rows(lambda z: self._place(z)[0], logits).astype(np.int16))
            inside = map_rows(lambda z: self._place(z)[1].astype(np.float32), logits)
            inside = torch.as_tensor(inside)

            def from_table(layers: list[Any], rows: Any) -> Any:
                table, at = _integral(torch, layers, torch.float32), cell[rows].long()
                return -(table[:-1][at] + inside[rows] * (table[1:] - table[:-1])[at])

            return 1, 1, from_table
        m = logits.shape[1]
        features = torch.as_tensor(map_rows(self._features, logits))
        gaps = torch.as_tensor(map_rows(self._gaps, logits))
        # Depths are summed in sorted order, and then put back in the order of the classes.
        index = map_rows(lambda z: sort_with_index(depths(z))[1], logits)
        back = torch.as_tensor(np.argsort(index, axis=1).astype(np.int32))

        def from_gaps(layers: list[Any], rows: Any) -> Any:
            steps = gaps[rows] * positive_factor(forward(features[rows], layers))
            value = torch.nn.functional.pad(torch.cumsum(steps, dim=1), (1, 0))
            return -value.gather(1, back[rows].long())

        return m, max(1, m - 1), from_gaps

    # One function of every depth.

    def _place(self, logits: ndarray) -> tuple[ndarray, ndarray]:
        """Index of the table's cell that each depth falls in (the last for those beyond it), and the place inside."""
        d = depths(logits)
        d *= d.dtype.type((_POINTS - 1) / (_DEEPEST * self.temperature_))
        cell = np.minimum(d, _POINTS - 2).astype(np.int64)
        return cell, d - cell.astype(d.dtype)

    def _from_table(self, logits: ndarray) -> ndarray:
        cell, inside = self._place(logits)
        table = self.table_.astype(inside.dtype)
        value = table[cell] + inside * np.diff(table)[cell]
        # Rounding may carry the end of a cell beyond the start of the next.
        np.minimum(value, table[cell + 1], out=value, where=cell < _POINTS - 2)
        return -value

    # Multipliers of the gaps.

    def _features(self, logits: ndarray) -> ndarray:
        d = depths(logits)
        return squeeze(np.sort(d, axis=1) if self.mode == "oi" else d, self.temperature_)

    def _gaps(self, logits: ndarray) -> ndarray:
        """Differences of the sorted depths in units of the temperature (n, m - 1); 0 down to a class not available."""
        gaps = np.diff(np.sort(depths(logits), axis=1), axis=1)
        available = np.count_nonzero(~np.isinf(logits), axis=1)
        gaps[np.arange(1, logits.shape[1]) >= available[:, None]] = 0.0
        return (gaps / self.temperature_).astype(np.float32)

    def _from_gaps(self, logits: ndarray) -> ndarray:
        d, index = sort_with_index(depths(logits))
        multipliers = positive_factor(forward(self._features(logits), self.layers_))
        multipliers = (multipliers / self.temperature_).astype(d.dtype)
        value = np.zeros_like(d)
        if d.shape[1] > 1:
            np.cumsum(np.diff(d, axis=1) * multipliers, axis=1, out=value[:, 1:])
        return -scatter(value, index)

    def _scaled(self, logits: ndarray) -> ndarray:
        with np.errstate(over="ignore"):
            f = self._from_table(logits) if self.mode == "diag" else self._from_gaps(logits)
            f *= f.dtype.type(self.scale_)
            return f


def _integral(xp: Any, layers: list[Any], dtype: Any) -> Any:
    """``F`` at the points of the table, in units where temperature scaling is ``F(d) = d / T``."""
    t = xp.linspace(-1.0, 1.0, _POINTS, dtype=dtype)
    slope = positive_factor(forward(t[:, None], layers))[:, 0]
    steps = (slope[1:] + slope[:-1]) * (0.5 * _DEEPEST / (_POINTS - 1))
    return xp.concatenate([0.0 * steps[:1], xp.cumsum(steps, 0)])
