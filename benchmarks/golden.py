"""Golden outputs: what every calibrator answers on every kind of input, recorded by one version and compared by another.

    python benchmarks/golden.py record golden.npz     fit, predict, certify, save and export with the code that is installed
    python benchmarks/golden.py compare golden.npz    do the same again, and print what differs

Recorded for each case (a calibrator on an input): probabilities and calibrated logits of test rows, objective and violation of
the certificate, the saved JSON file, and the outputs of the ONNX graph and of the torch module. ``compare`` also loads every
recorded JSON file with the code that is installed. The exit status is 1 where a difference exceeds its bound: 0 for
probabilities and logits (``--bound`` allows more), 1e-6 for certificates and exports.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax

import monocal as mc
import pages

Inputs = tuple[Any, np.ndarray, dict[str, Any], Any]  # X and y of the fit, its keywords, X to predict
EXPORT_BOUND = 1e-6
# Networks are trained for a few epochs only: their arithmetic is what is compared.
FEW_EPOCHS = {"max_epochs": 5}


def rows(n: int, m: int, seed: int, *, sharp: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    """Over-confident logits and labels drawn from the probabilities behind them."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, m)) * 1.5
    y = (softmax(z, axis=1).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    return sharp * z + 0.2 * rng.normal(size=(n, m)), np.minimum(y, m - 1)


def inputs() -> dict[str, Inputs]:
    """Kinds of input by name."""
    z, y = rows(600, 6, 0)
    new = rows(200, 6, 1)[0]
    two, y_two = rows(600, 2, 2)
    large, y_large = rows(70_000, 20, 3)
    weight = np.random.default_rng(4).gamma(2.0, size=600)
    masked = np.where(np.random.default_rng(5).random(z.shape) < 0.2, -np.inf, z)
    masked[np.arange(600), y] = z[np.arange(600), y]
    site = np.array(["north", "south", "east"])[np.arange(600) % 3]
    return {
        "float64": (z, y, {}, new),
        "float32, large": (large.astype(np.float32), y_large, {}, large[:300].astype(np.float32)),
        "rounded": (z.round(1), y, {}, new.round(1)),
        "masked": (masked, y, {}, masked[:200]),
        "two classes": (two, y_two, {}, rows(200, 2, 6)[0]),
        "log-probabilities": (log_softmax(z, axis=1), y, {}, log_softmax(new, axis=1)),
        "weights": (z, y, {"sample_weight": weight}, new),
        "context": (z, y, {"context": {"site": site}}, new),
        "blocks": (lambda: ((z[i : i + 100], y[i : i + 100]) for i in range(0, 600, 100)), y, {}, new),
    }


def methods() -> dict[str, Callable[[], Any]]:
    """Calibrators by name, each also for probabilities where the rows are those of ``float64``."""
    return {info.name: info.make for info in mc.all_calibrators() if not info.published}


def case(make: Callable[[], Any], source: Inputs) -> dict[str, np.ndarray]:
    """All outputs of one case; a refusal is recorded by its kind."""
    X, y, keywords, new = source
    model = make()
    if "max_epochs" in model.get_params():
        model.set_params(**FEW_EPOCHS)
    if callable(X) and not getattr(model, "_streams", False):
        return {}
    later = {"context": {"site": keywords["context"]["site"][: len(new)]}} if "context" in keywords else {}
    try:
        model.fit(X, None if callable(X) else y, **keywords)
        outputs = {
            "probabilities": np.asarray(model.predict_proba(new, **later)),
            "logits": np.asarray(model.transform(new, **later)),
        }
    except (TypeError, ValueError) as error:
        return {"refused": np.array(type(error).__name__)}
    solution = getattr(model, "solution_", None)
    if solution is not None:
        outputs["certificate"] = np.array([solution.objective, solution.kkt])
    return outputs | _saved(model) | _exported(model, new, later)


def _saved(model: Any) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save(path)
        return {"json": np.array(path.read_text())}


def _exported(model: Any, new: np.ndarray, later: dict[str, Any]) -> dict[str, np.ndarray]:
    """Outputs of the ONNX graph and of the torch module, where the calibrator has them and needs the logits only."""
    if later:
        return {}
    try:
        graph, module = model.to_onnx(dtype=new.dtype.name), model.to_torch()
    except mc.InputError:
        return {}
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    with torch.no_grad():
        by_torch = module.to(torch.from_numpy(new).dtype)(torch.from_numpy(new)).numpy()
    return {"onnx": session.run(None, {session.get_inputs()[0].name: new})[0], "torch": by_torch}


def cases(text: str) -> Iterator[tuple[str, Callable[[], Any], Inputs]]:
    for kind, source in inputs().items():
        for name, make in methods().items():
            if text in f"{name} / {kind}":
                yield f"{name} / {kind}", make, source


def record(path: Path, text: str) -> None:
    stored = {}
    for name, make, source in cases(text):
        stored |= {f"{name} / {what}": value for what, value in case(make, source).items()}
        print(name, file=sys.stderr)
    np.savez_compressed(path, **stored)
    print(f"{len(stored)} outputs recorded in {path}")


def difference(new: np.ndarray, old: np.ndarray) -> float:
    """The largest absolute difference, relative to the value where that is above 1; inf where shapes or infinities differ."""
    if new.dtype.kind in "US" or old.dtype.kind in "US":
        return 0.0 if str(new) == str(old) else np.inf
    if new.shape != old.shape or not np.array_equal(np.isinf(new), np.isinf(old)):
        return np.inf
    finite = np.isfinite(old)
    a, b = new[finite].astype(np.float64), old[finite].astype(np.float64)
    return float((np.abs(a - b) / np.maximum(np.abs(b), 1.0)).max(initial=0.0))


def compare(path: Path, text: str, bound: float) -> int:
    """Print every difference above its bound; the number of these."""
    stored, checked, failures = np.load(path), 0, 0
    for name, make, source in cases(text):
        outputs = case(make, source)
        old = {key.rpartition(" / ")[2]: key for key in stored.files if key.rpartition(" / ")[0] == name}
        if "json" in old:
            outputs["loaded"], old["loaded"] = _loaded(stored[old["json"]], source), old["probabilities"]
            # Files hold dates and versions: what they load as is compared.
            outputs["json"] = stored[old["json"]]
        for what in outputs.keys() | old.keys():
            checked += 1
            limit = bound if what in ("probabilities", "logits", "loaded") else EXPORT_BOUND
            apart = (
                difference(outputs[what], stored[old[what]]) if what in outputs and what in old else np.inf
            )
            if apart > limit:
                failures += 1
                print(
                    f"{name} / {what}: {'missing' if what not in outputs else 'new' if what not in old else f'{apart:.1e}'}"
                )
    if not checked:
        raise SystemExit(f"no case has {text!r} in its name")
    print(f"{checked} outputs compared, {failures} differ")
    return failures


def _loaded(text: np.ndarray, source: Inputs) -> np.ndarray:
    """Probabilities of a recorded file, loaded by this version."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        path.write_text(str(text))
        later = {}
        if "context" in source[2]:
            later = {"context": {"site": source[2]["context"]["site"][: len(source[3])]}}
        try:
            return np.asarray(mc.load(path).predict_proba(source[3], **later))
        except ValueError as error:
            return np.array(f"{type(error).__name__}: {json.dumps(str(error))}")


def main() -> None:
    parser = pages.parser_of(__doc__)
    parser.add_argument("command", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument(
        "--bound", type=float, default=0.0, help="largest difference of probabilities and logits"
    )
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.command == "record":
        record(options.file, options.only)
    elif compare(options.file, options.only, options.bound):
        sys.exit(1)


if __name__ == "__main__":
    main()
