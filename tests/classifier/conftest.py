"""What the tests of `CalibratedClassifier` share."""

import pytest
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split


@pytest.fixture(scope="module")
def problem():
    X, y = make_classification(
        900, 12, n_informative=6, n_classes=4, n_clusters_per_class=1, flip_y=0.2, random_state=0
    )
    return train_test_split(X, y, test_size=0.5, random_state=0)
