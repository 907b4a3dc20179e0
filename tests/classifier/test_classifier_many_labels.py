"""`CalibratedClassifier` where each row has many labels."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.datasets import make_multilabel_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier

import monocal as mc

X, Y = make_multilabel_classification(500, n_classes=4, n_labels=2, random_state=0)
NEW, NEW_Y = X[350:], Y[350:]
X, Y = X[:350], Y[:350]
LOGISTIC = LogisticRegression(max_iter=500)
ESTIMATORS = {
    "outputs": MultiOutputClassifier(LOGISTIC),
    "chain": ClassifierChain(LOGISTIC),
    "rest": OneVsRestClassifier(LOGISTIC),
    "ridge": RidgeClassifier(),
    "forest": RandomForestClassifier(20, random_state=0),
}


def nll(p, y=NEW_Y):
    return -np.log(np.where(y == 1, p, 1 - p)).mean()


@pytest.mark.parametrize(("name", "ensemble"), [(n, n in ("outputs", "forest")) for n in ESTIMATORS])
def test_estimators_of_many_labels(name, ensemble):
    model = mc.CalibratedClassifier(ESTIMATORS[name], ensemble=ensemble, cv=3).fit(X, Y)
    p = model.predict_proba(NEW)
    assert p.shape == NEW_Y.shape
    rate = Y.mean(axis=0)
    assert nll(p) < nll(np.tile(rate, (len(NEW), 1))) - 0.05
    np.testing.assert_array_equal(model.predict(NEW), p > 0.5)
    np.testing.assert_array_equal(model.classes_, np.arange(4))
    assert model.score(NEW, NEW_Y) == np.mean((model.predict(NEW) == NEW_Y).all(axis=1))
    assert len(model.calibrated_classifiers_) == (3 if ensemble else 1)


def test_the_ranking_within_every_label_stays():
    model = mc.CalibratedClassifier(ESTIMATORS["rest"]).fit(X, Y)
    scores = model.estimator_.decision_function(NEW)
    for i in range(4):
        before, after = (roc_auc_score(NEW_Y[:, i], s[:, i]) for s in (scores, model.predict_proba(NEW)))
        assert after == pytest.approx(before, abs=1e-12)


def test_fitted_estimators_with_labels_that_are_not_known():
    estimator = MultiOutputClassifier(LOGISTIC).fit(X[:200], Y[:200])
    partly = Y[200:].astype(float)
    partly[::3, 1] = np.nan
    model = mc.CalibratedClassifier(estimator, cv="prefit").fit(X[200:], partly)
    assert model.estimator_ is estimator
    assert nll(model.predict_proba(NEW)) < 0.7
    with pytest.raises(mc.InputError, match="trained on labels 0 and 1"):
        mc.CalibratedClassifier(estimator).fit(X[200:], partly)


def test_a_label_that_a_fold_has_not_seen():
    rare = Y.copy()
    rare[:, 3] = 0
    rare[7, 3] = 1
    p = mc.CalibratedClassifier(ESTIMATORS["forest"], cv=KFold(3)).fit(X, rare).predict_proba(NEW)
    assert p[:, 3].max() < 0.1


def test_sparse_labels_weights_and_methods():
    method = mc.MultilabelMCCT(label_shrinkage=3.0)
    model = mc.CalibratedClassifier(ESTIMATORS["rest"], method)
    dense = model.fit(X, Y).predict_proba(NEW)
    assert model.calibrator_.label_shrinkage == 3.0
    np.testing.assert_array_equal(model.fit(X, csr_matrix(Y)).predict_proba(NEW), dense)
    with pytest.warns(UserWarning, match="takes no sample_weight"):
        weighted = mc.CalibratedClassifier(ESTIMATORS["rest"], method).fit(X, Y, np.full(350, 0.5))
    assert np.abs(weighted.predict_proba(NEW) - dense).max() < 0.1


def test_what_is_refused():
    model = mc.CalibratedClassifier(ESTIMATORS["rest"])
    with pytest.raises(mc.InputError, match="expected 0 or 1 in every column"):
        model.fit(X, Y * 2)
    with pytest.raises(mc.InputError, match="MultilabelMCCT"):
        mc.CalibratedClassifier(ESTIMATORS["rest"], "mcct").fit(X, Y)
    with pytest.raises(mc.InputError, match="takes none"):
        model.fit(X, Y, context=Y[:, 0])
    with pytest.raises(mc.InputError, match=r"calibrator_.to_onnx"):
        model.fit(X, Y).to_onnx()
