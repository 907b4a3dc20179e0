"""Images and tokens from the command line: the classes in any axis, labels that do not count, results in the shape given."""

from __future__ import annotations

import json

import numpy as np
import pytest

import monocal as mc
from monocal.data import synthetic

N, M, H, W = 4, 5, 10, 12
DATA = synthetic(N * H * W, M, seed=6)
IMAGES = np.ascontiguousarray(np.moveaxis(DATA.values.reshape(N, H, W, M), -1, 1))
PLACES = np.where(np.arange(H)[:, None] < 2, 255, DATA.labels.reshape(N, H, W))
KEPT = (PLACES != 255).ravel()
HOW = ("--class-axis", "1", "--ignore-index", "255")


@pytest.fixture
def images(tmp_path):
    np.savez(tmp_path / "cal.npz", logits=IMAGES, labels=PLACES)
    np.save(tmp_path / "logits.npy", IMAGES)
    return tmp_path


def test_fit_apply_and_evaluate_images(run, images):
    result = json.loads(run("fit", images / "cal.npz", "-o", images / "cal.json", *HOW, "--json").stdout)
    assert result["n_samples"] == KEPT.sum()
    cal = mc.load(images / "cal.json")
    assert (cal.class_axis, cal.ignore_index) == (1, 255)
    rows = mc.ConditionalMCCT().fit(DATA.values[KEPT], DATA.labels[KEPT])
    expected = np.moveaxis(rows.predict_proba(DATA.values).reshape(N, H, W, M), -1, 1)
    np.testing.assert_allclose(cal.predict_proba(IMAGES), expected, atol=1e-6)
    # The calibrator knows where the classes are.
    run("apply", images / "cal.json", images / "logits.npy", "-o", images / "p.npy")
    np.testing.assert_allclose(np.load(images / "p.npy"), expected, atol=1e-6)
    run("apply", images / "cal.json", images / "cal.npz", "-o", images / "p.npz")
    with np.load(images / "p.npz") as file:
        np.testing.assert_allclose(file["probabilities"], expected, atol=1e-6)
    result = json.loads(
        run("evaluate", images / "cal.npz", "-c", images / "cal.json", "--n-boot", "0", "--json").stdout
    )
    actual = mc.evaluate(expected, PLACES, class_axis=1, ignore_index=255)
    assert result["after"]["metrics"]["nll"]["value"] == pytest.approx(actual["nll"].value, rel=1e-6)


def test_compare_and_report_take_images(run, images):
    result = json.loads(run("compare", images / "cal.npz", *HOW, "--methods", "ts,mcct", "--json").stdout)
    assert len(result["methods"]) >= 2
    assert result["recommended"]
    run("report", images / "cal.npz", *HOW, "--no-compare", "-o", images / "report.html")
    assert (images / "report.html").stat().st_size > 10_000


def test_tokens_need_no_axis(run, tmp_path):
    np.savez(tmp_path / "t.npz", logits=DATA.values.reshape(24, 20, M), labels=DATA.labels.reshape(24, 20))
    run("fit", tmp_path / "t.npz", "-o", tmp_path / "cal.json", "--method", "ts")
    expected = mc.TemperatureScaling().fit(DATA.values, DATA.labels)
    assert mc.load(tmp_path / "cal.json").temperature_ == pytest.approx(expected.temperature_)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--class-axis 1 for images"),
        (("--class-axis", "7"), "--class-axis 7 is no axis"),
        (("--class-axis", "1"), "255"),
    ],
)
def test_what_does_not_fit_is_said_in_the_words_of_the_command_line(run, images, options, words):
    result = run("fit", images / "cal.npz", "-o", images / "cal.json", *options, code=1)
    assert words in " ".join(result.stderr.split())


def test_what_belongs_to_places_goes_along(run, tmp_path):
    names = np.array([f"image {i}" for i in range(N)])
    np.savez(tmp_path / "d.npz", logits=IMAGES, labels=PLACES, ids=names, weights=np.ones(7))
    run("fit", tmp_path / "d.npz", "-o", tmp_path / "cal.json", *HOW, "--method", "ts")
    said = run("apply", tmp_path / "cal.json", tmp_path / "d.npz", "-o", tmp_path / "p.npz")
    assert "'weights' has another number of rows and is left out" in said.stderr
    assert "'labels'" not in said.stderr
    with np.load(tmp_path / "p.npz") as file:
        np.testing.assert_array_equal(file["labels"], PLACES)
        np.testing.assert_array_equal(file["ids"], names)
        assert file["probabilities"].shape == IMAGES.shape
        assert "weights" not in file
    # What came out can be read in turn.
    run("evaluate", tmp_path / "p.npz", *HOW, "--n-boot", "0")


def test_the_number_of_axes_of_a_graph(run, images):
    onnxruntime = pytest.importorskip("onnxruntime")
    run("fit", images / "cal.npz", "-o", images / "cal.json", *HOW, "--method", "ts")
    export = ("export", images / "cal.json", "--to")
    message = " ".join(run(*export, "onnx", "-o", images / "c.onnx", code=1).stderr.split())
    assert "--ndim 4 for (N, C, H, W)" in message
    run(*export, "onnx", "-o", images / "c.onnx", "--ndim", str(IMAGES.ndim))
    session = onnxruntime.InferenceSession(images / "c.onnx")
    expected = mc.load(images / "cal.json").predict_proba(IMAGES)
    (result,) = session.run(None, {session.get_inputs()[0].name: IMAGES.astype(np.float32)})
    np.testing.assert_allclose(result, expected, atol=1e-5)
