"""CalibrationMetric in torchmetrics' own collections, over batches, images, resets and processes that were added up."""

import numpy as np
import pytest
import torch
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError

import monocal as mc
from monocal.integrations.torch_metric import CalibrationMetric
from monocal.metrics import METRICS

DATA = mc.data.synthetic(500, 4, seed=0)
LOGITS, LABELS = torch.tensor(DATA.values), torch.tensor(DATA.labels)
PROBS = torch.softmax(LOGITS, dim=1)


def test_batches_give_what_all_rows_give():
    names = [name for name, one in METRICS.items() if one.merges and not one.binary]
    metric = CalibrationMetric(4, names)
    for rows in torch.arange(500).split(64):
        metric.update(PROBS[rows], LABELS[rows])
    expected = mc.evaluate(PROBS, LABELS, metrics=names)
    for name, value in metric.compute().items():
        assert float(value) == pytest.approx(expected[name].value, abs=1e-6)
    metric.reset()
    metric.update(PROBS[:50], LABELS[:50])
    assert float(metric.compute()["nll"]) == pytest.approx(mc.metrics.nll(PROBS[:50], LABELS[:50]), abs=1e-6)


def test_in_a_collection_beside_others():
    both = MetricCollection(
        {
            "ece": CalibrationMetric(4, "ece"),
            "theirs": MulticlassCalibrationError(4, n_bins=15),
            "accuracy": CalibrationMetric(4, "accuracy"),
            "their_accuracy": MulticlassAccuracy(4, average="micro"),
        }
    )
    for rows in torch.arange(500).split(100):
        both.update(PROBS[rows], LABELS[rows])
    result = both.compute()
    assert float(result["ece"]) == pytest.approx(float(result["theirs"]), abs=1e-5)
    assert float(result["accuracy"]) == pytest.approx(float(result["their_accuracy"]), abs=1e-6)
    assert both["accuracy"].higher_is_better
    assert not both["ece"].higher_is_better
    step = CalibrationMetric(4, "nll")(PROBS[:100], LABELS[:100])  # forward: the value of this batch
    assert float(step) == pytest.approx(mc.metrics.nll(PROBS[:100], LABELS[:100]), abs=1e-6)


def test_states_of_processes_add():
    """What torchmetrics does when it synchronises: it gathers the states of all processes and sums them."""
    names = ["nll", "smooth_ece", "kde_ece"]
    whole, other = CalibrationMetric(4, names), CalibrationMetric(4, names)
    own = CalibrationMetric(
        4,
        names,
        dist_sync_fn=lambda tensor, group: [tensor, other.totals],
        distributed_available_fn=lambda: True,
    )
    whole.update(PROBS, LABELS)
    own.update(PROBS[:123], LABELS[:123])
    other.update(PROBS[123:], LABELS[123:])
    result = own.compute()
    for name, value in whole.compute().items():
        assert float(result[name]) == pytest.approx(float(value), abs=1e-6)


def test_images_of_logits_with_labels_that_do_not_count():
    rng = np.random.default_rng(0)
    logits = torch.tensor(rng.normal(size=(2, 3, 5, 6)), dtype=torch.float32)
    labels = torch.tensor(rng.integers(0, 3, (2, 5, 6)))
    labels[:, 0] = -100
    metric = CalibrationMetric(3, "nll", input="logits", class_axis=1, ignore_index=-100)
    metric.update(logits.numpy(), labels.numpy())
    assert float(metric.compute()) == pytest.approx(
        float(torch.nn.functional.cross_entropy(logits, labels)), abs=1e-6
    )


def test_refusals():
    with pytest.raises(mc.InputError, match="adaptive_ece need all rows at once"):
        CalibrationMetric(4, "adaptive_ece")
    with pytest.raises(mc.InputError, match=r"positive_ece: a positive class is one of two, but there are 4"):
        CalibrationMetric(4, ["nll", "positive_ece"])
    two = CalibrationMetric(2, "positive_ece")
    two.update(torch.tensor([[0.25, 0.75]]), torch.tensor([1]))
    assert float(two.compute()) == 0.25
    with pytest.raises(mc.InputError, match="num_classes must be"):
        CalibrationMetric(1, "nll")
    with pytest.raises(mc.InputError, match="expected 4 classes in axis -1"):
        CalibrationMetric(4).update(PROBS[:, :3], LABELS)
    with pytest.raises(mc.InputError, match="input must be one of"):
        CalibrationMetric(4, input="scores")
    with (
        pytest.raises(mc.InputError, match="no rows were seen yet"),
        pytest.warns(UserWarning, match="before"),
    ):
        CalibrationMetric(4, "nll").compute()
    for axis in (2, -3):
        with pytest.raises(mc.InputError, match=f"expected 4 classes in axis {axis}, got shape"):
            CalibrationMetric(4, class_axis=axis).update(PROBS, LABELS)


def test_a_batch_without_rows_adds_nothing():
    metric = CalibrationMetric(4, "nll", ignore_index=-1)
    metric.update(PROBS, LABELS)
    before = float(metric.compute())
    metric.update(PROBS[:0], LABELS[:0])
    assert np.isnan(float(metric(PROBS[:0], LABELS[:0])))
    assert np.isnan(float(metric(PROBS[:3], torch.full((3,), -1))))
    assert float(metric.compute()) == before
