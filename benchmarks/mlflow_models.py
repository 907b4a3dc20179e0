"""MLflow with monocal: calibrators and calibrated classifiers logged, loaded again and compared to the last bit.

MLflow brings some thirty packages, so it is not part of the tests. In an environment of its own:

    python -m venv /tmp/mlflow-env
    /tmp/mlflow-env/bin/pip install mlflow-skinny pandas skops .
    /tmp/mlflow-env/bin/python benchmarks/mlflow_models.py
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import monocal as mc
import pages

FORMATS: dict[str, dict[str, Any]] = {
    "cloudpickle": {"serialization_format": "cloudpickle"},
    "skops": {"serialization_format": "skops", "skops_trusted_types": mc.SKOPS_TRUSTED},
}


def models() -> dict[str, Any]:
    data = mc.data.synthetic(300, 4, seed=0)
    names = np.array(["ant", "bee", "cat", "dog"])[data.labels]
    classifier = mc.CalibratedClassifier(LogisticRegression(), "conditional", cv=3)
    return {
        "TemperatureScaling": mc.TemperatureScaling().fit(data.values, data.labels),
        "MCCT": mc.MCCT().fit(data.values, data.labels),
        "ConditionalMCCT": mc.ConditionalMCCT().fit(data.values, data.labels),
        "StructuredMCCT": mc.StructuredMCCT().fit(data.values, data.labels),
        "CalibratedClassifier": classifier.fit(data.values, names),
        "CalibratedClassifier, ensemble": mc.CalibratedClassifier(
            LogisticRegression(), cv=3, ensemble=True
        ).fit(data.values, names),
    }


def main() -> int:
    pages.parser_of(__doc__).parse_args()
    import mlflow  # here, so that --help needs no MLflow
    from mlflow.sklearn import load_model, log_model

    X = mc.data.synthetic(100, 4, seed=1)
    failed = 0
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # mlflow-skinny has no database
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        mlflow.set_tracking_uri((Path(folder) / "runs").as_uri())
        print(f"MLflow {mlflow.__version__}")
        with mlflow.start_run():
            for name, model in models().items():
                model.predict_proba(X.values)  # logged after use, as people do
                figures = mc.evaluate(model.predict_proba(X.values), X.labels, n_boot=20).to_dict(flat=True)
                mlflow.log_metrics(figures)
                for kind, options in FORMATS.items():
                    logged = log_model(model, name="model", pip_requirements=["monocal"], **options)
                    again = load_model(logged.model_uri)
                    same = np.array_equal(again.predict_proba(X.values), model.predict_proba(X.values))
                    failed += not same
                    print(f"{name:32}{kind:14}{'the same' if same else 'ANOTHER'}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
