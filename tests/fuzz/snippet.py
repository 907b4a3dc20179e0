"""A failure as code to paste: everything it needs and a comment that says what is wrong."""

from __future__ import annotations

import numpy as np

from .checks import Failure
from .engines import Case

# Numbers that are printed; a larger case is named by its seed alone.
MOST = 3000


def snippet(case: Case, failure: Failure) -> str:
    training, batch = case.training, case.batch
    seed = f"python -m fuzz --seed {case.seed[0]} --first {case.seed[1]} --fits 1" if case.seed else "no seed"
    shape = f"{training.x.shape[0]} x {training.x.shape[1]} calibration rows, {len(batch.rows)} rows"
    head = f"# {failure.promise}, row {failure.row}: {failure.text}\n# {shape}; from {seed}"
    if training.x.size + batch.rows.size > MOST:
        return f"{head}\n# {case.method.source}, {batch.engine}, {batch.dtype}: too large to print"
    lines = [
        head,
        "import numpy as np",
        "import monocal as mc",
        "inf = np.inf",
        f"Z = np.array({listed(training.x)})",
        f"y = np.array({training.y.tolist()})",
    ]
    weight = ""
    if training.weight is not None:
        lines.append(f"w = np.array({training.weight.tolist()})")
        weight = ", sample_weight=w"
    lines.append(f"cal = {case.method.source}.fit(Z, y{weight})")
    if failure.promise == "fit":
        return "\n".join(lines)
    kind = "float32" if batch.dtype == "bfloat16" else batch.dtype
    lines.append(f"X = np.array({listed(batch.rows)}, dtype=np.{kind})")
    if batch.repeat > 1:
        lines.append(f"X = np.tile(X, ({batch.repeat}, 1))  # enough for compiled loops")
    return "\n".join([*lines, *CALLS[batch.engine](batch.dtype)])


def listed(values: np.ndarray) -> str:
    """Numbers that read back bit for bit."""
    if values.dtype == np.longdouble:
        return str([[f"{x!s}" for x in row] for row in values])
    return str(values.tolist() if values.dtype.kind == "i" else values.astype(np.float64).tolist())


CALLS = {
    "numpy": lambda dtype: ["print(cal.predict_proba(X), cal.transform(X), cal.predict(X))"],
    "out": lambda dtype: ["print(cal.predict_proba(X, out=np.empty(X.shape, dtype=np.float16)))"],
    "torch": lambda dtype: [
        "import torch",
        f"X = torch.tensor(X).to(torch.{dtype})",
        "print(cal.predict_proba(X), cal.transform(X), cal.predict(X))",
    ],
    "module": lambda dtype: [
        "import torch",
        f"X = torch.tensor(X).to(torch.{dtype})",
        f"module = cal.to_torch(dtype=torch.{'float64' if dtype == 'float64' else 'float32'})",
        "print(module(X), module.transform(X))",
    ],
    "onnx": lambda dtype: [
        "import onnxruntime",
        'for output in ("probabilities", "logits"):',
        f"    model = cal.to_onnx(output=output, dtype={dtype!r}).SerializeToString()",
        '    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])',
        "    print(session.run(None, {session.get_inputs()[0].name: X})[0])",
    ],
}
