"""What `CalibratedClassifier(ensemble=True)` gains: NLL of one model and one calibrator, and of the mean of five.

    python benchmarks/ensemble.py [--docs]

Sets of scikit-learn and made ones, half of each to fit on and half to judge on, twice; five classifiers as they come.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import monocal as mc
import pages

METHODS = ("temperature", "mcct", "conditional")
REPEATS = 2


def sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    made = {
        f"made, {m} classes": make_classification(
            2000, 20, n_informative=8, n_classes=m, n_clusters_per_class=2, flip_y=0.1, random_state=m
        )
        for m in (2, 5, 10)
    }
    loaders = {"digits": load_digits, "breast cancer": load_breast_cancer, "wine": load_wine}
    return {name: load(return_X_y=True) for name, load in loaders.items()} | made


def classifiers(seed: int) -> dict[str, Any]:
    return {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        "naive Bayes": GaussianNB(),
        "random forest": RandomForestClassifier(30, random_state=seed),
        "tree": DecisionTreeClassifier(min_samples_leaf=5, random_state=seed),
        "network": make_pipeline(StandardScaler(), MLPClassifier((30,), max_iter=60, random_state=seed)),
    }


def as_table(losses: dict[tuple[str, str], list[tuple[float, float]]]) -> str:
    header = ["mean NLL", *(word for method in METHODS for word in (f"{method}, one", "ensemble"))]
    rows = []
    for kind in classifiers(0):
        means = np.concatenate([np.mean(losses[kind, method], axis=0) for method in METHODS])
        rows.append([kind, *(f"{mean:.3f}" for mean in means)])
    return pages.table(header, rows)


def main(docs: bool) -> None:
    warnings.simplefilter("ignore")  # networks that have not converged
    losses: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for X, y in sets().values():
        for seed in range(REPEATS):
            X_fit, X_test, y_fit, y_test = train_test_split(
                X, y, test_size=0.5, stratify=y, random_state=seed
            )
            for kind, classifier in classifiers(seed).items():
                for method in METHODS:
                    nll = [
                        mc.metrics.nll(
                            mc.CalibratedClassifier(classifier, method, ensemble=ensemble)
                            .fit(X_fit, y_fit)
                            .predict_proba(X_test),
                            y_test,
                        )
                        for ensemble in (False, True)
                    ]
                    losses.setdefault((kind, method), []).append((nll[0], nll[1]))
    table = as_table(losses)
    print(table)
    if docs:
        pages.write_into("docs/scikit-learn.md", "ensemble", table)
    for method in METHODS:
        pairs = np.array([pair for (_, by), own in losses.items() if by == method for pair in own])
        better = 100 * np.mean(pairs[:, 1] < pairs[:, 0])
        print(
            f"{method}: {pairs[:, 0].mean():.3f} -> {pairs[:, 1].mean():.3f}, better in {better:.0f} % of {len(pairs)}"
        )


if __name__ == "__main__":
    parser = pages.parser_of(__doc__)
    parser.add_argument("--docs", action="store_true", help="write the table into docs/scikit-learn.md")
    main(parser.parse_args().docs)
