"""Signals at any moment, full disks, outputs that are inputs, numbers out of bounds: a code, a sentence, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from cli_helpers import TEST, monocal

import monocal as mc
from monocal import persistence

Run = Callable[..., Any]
posix = pytest.mark.skipif(os.name == "nt", reason="signals and files of POSIX")


# Signals.

# Sends itself a signal when a module is about to be loaded.
WHILE_LOADING = """
import os, sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Finder)
sys.argv[1:] = "fit cal.npz -o cal.json".split()
from monocal.cli import main
main()
"""


@posix
@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("typer", signal.SIGINT),
        ("sklearn.base", getattr(signal, "SIGHUP", 1)),
        ("monocal.metrics", signal.SIGTERM),
    ],
)
def test_a_signal_while_modules_load(folder: Path, module: str, number: int) -> None:
    before = os.listdir(folder)
    code = WHILE_LOADING.format(module=module, number=int(number))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "", "")
    assert os.listdir(folder) == before


@posix
@pytest.mark.usefixtures("default_signals")
def test_a_signal_while_a_network_is_trained(folder: Path) -> None:
    number = signal.SIGTERM
    command = [sys.executable, "-m", "monocal", "report", "cal.npz", "--all", "-o", "page.html"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        end, workers = time.monotonic() + 300, []
        while time.monotonic() < end and not any("torch" in file.path for w in workers for file in maps(w)):
            assert process.poll() is None
            time.sleep(0.02)
            workers = psutil.Process(process.pid).children()
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=300)
    assert (process.returncode, stdout, stderr) == (128 + number, "", "")
    assert psutil.wait_procs(workers, timeout=120)[1] == []
    assert sorted(os.listdir(folder)) == ["both.npz", "cal.npz", "test.npz", "unlabelled.npz"]


def maps(process: psutil.Process) -> list[Any]:
    try:
        return process.memory_maps()
    except psutil.Error:
        return []


@posix
def test_an_ignored_signal_stays_ignored(folder: Path) -> None:
    code = WHILE_LOADING.format(module="numpy", number=int(signal.SIGHUP))
    code = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + code  # as nohup does
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0
    assert (folder / "cal.json").exists()


# Outputs.


@pytest.mark.parametrize("link", [None, os.symlink, os.link], ids=["same", "symlink", "link"])
def test_an_output_is_never_an_input(run: Run, folder: Path, calibrator: mc.MCCT, link: Any) -> None:
    calibrator.to_onnx("model.onnx")
    np.save("logits.npy", TEST.values)
    np.save("labels.npy", TEST.labels)
    (folder / "parts").mkdir()
    np.save("parts/logits.npy", TEST.values)
    inputs = ("model.onnx", "test.npz", "logits.npy", "labels.npy", "parts/logits.npy")
    before = {name: (folder / name).read_bytes() for name in inputs}

    def named(name: str) -> str:
        other = name if link is None else str(Path(name).with_stem("other"))
        if link is not None:
            link(folder / name, folder / other)
        return other

    for arguments in (
        ("export", "cal.json", "--to", "onnx", "--append-to", "model.onnx", "-o", named("model.onnx")),
        ("apply", "cal.json", "test.npz", "-o", named("test.npz")),
        ("apply", "cal.json", "logits.npy", "--labels", "labels.npy", "-o", named("labels.npy")),
        ("apply", "cal.json", "parts", "-o", named("parts/logits.npy")),
    ):
        assert "is what is being read: name another file" in run(*arguments, "--force", code=1).stderr
    assert {name: (folder / name).read_bytes() for name in inputs} == before


def test_an_output_is_not_the_weights_of_a_model(run: Run, folder: Path, calibrator: mc.MCCT) -> None:
    onnx = pytest.importorskip("onnx")
    where = {"save_as_external_data": True, "location": "weights.onnx", "size_threshold": 0}
    onnx.save(calibrator.to_onnx(output="logits"), "ext.onnx", **where)
    before = (folder / "weights.onnx").read_bytes()
    command = ("export", "cal.json", "--to", "onnx", "--append-to", "ext.onnx", "--force", "-o")
    assert "is what is being read" in run(*command, "weights.onnx", code=1).stderr
    assert (folder / "weights.onnx").read_bytes() == before
    for _ in range(2):
        run(*command, "out.onnx")


@posix
def test_an_output_is_no_file_that_an_input_folder_links_to(
    run: Run, folder: Path, calibrator: mc.MCCT
) -> None:
    (folder / "real").mkdir()
    (folder / "parts").mkdir()
    np.save("real/logits.npy", TEST.values)
    os.symlink("../real/logits.npy", "parts/logits.npy")
    before = (folder / "real/logits.npy").read_bytes()
    result = run("apply", "cal.json", "parts", "-o", "real/logits.npy", "--force", code=1)
    assert "is what is being read" in result.stderr
    assert (folder / "real/logits.npy").read_bytes() == before


@posix
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", ["--help", "evaluate test.npz --metrics nll --json"])
def test_a_full_disk_behind_stdout(folder: Path, arguments: str) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "monocal", *arguments.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "error: What was to be printed could not be: No space left on device; check where the output goes.\n"
    )


@posix
@pytest.mark.parametrize(
    ("arguments", "out"),
    [
        ("export cal.json --to torch", "program.pt2"),
        ("apply cal.json cal.npz", "program.h5"),
    ],
)
def test_no_room_for_what_libraries_write(
    folder: Path, calibrator: mc.MCCT, arguments: str, out: str
) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)); "
        f"sys.argv[1:] = '{arguments} -o {out}'.split(); from monocal.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert (
        done.stderr
        == f"error: {folder}/{out} could not be written: File too large; choose another place or free it.\n"
    )
    assert not [name for name in os.listdir(folder) if "program" in name]


@pytest.mark.parametrize("kind", ["probabilities", "logits"])
@pytest.mark.parametrize("damage", [np.nan, 2.0])
def test_no_wrong_row_is_written(
    run: Run, folder: Path, calibrator: mc.MCCT, monkeypatch: pytest.MonkeyPatch, kind: str, damage: float
) -> None:
    function = "predict_proba" if kind == "probabilities" else "transform"
    real = getattr(mc.MCCT, function)

    def damaged(self: mc.MCCT, values: np.ndarray) -> np.ndarray:
        out = np.array(real(self, values))
        out[len(out) // 2] *= damage
        return out

    monkeypatch.setattr(mc.MCCT, function, damaged)
    monkeypatch.setattr("monocal.MCCT.check_state", lambda calibrator: None)  # it would notice first
    monkeypatch.setattr("monocal.cli.fit_apply._BLOCK", 100)
    np.save("logits.npy", TEST.values)
    before = sorted(os.listdir(folder))
    legitimate = kind == "logits" and damage == 2.0  # logits may be anything finite
    for source in ("test.npz", "logits.npy"):
        for out in ("out.npz", "out.npy"):
            command = ("apply", "cal.json", source, "--as", kind, "-o", out, "--force")
            result = run(*command, code=0 if legitimate else 1)
            assert legitimate or f"cal.json gives no {kind} for row 10 " in result.stderr
            assert legitimate or sorted(os.listdir(folder)) == before


@pytest.mark.parametrize("dtype", ["i4", ">f4", "f2", "f8"])
def test_any_numbers_are_applied_to(run: Run, folder: Path, calibrator: mc.MCCT, dtype: str) -> None:
    values = (TEST.values * 3).astype(dtype)
    np.save("logits.npy", values)
    run("apply", "cal.json", "logits.npy", "-o", "out.npy")
    out = np.load("out.npy")
    assert out.dtype.kind == "f"
    assert np.abs(out.sum(axis=1, dtype=float) - 1).max() < 5e-3
    assert np.array_equal(out.argmax(axis=1), values.argmax(axis=1))


@pytest.mark.parametrize("data", [5, [1], {"shape": {"$array": "int64", "shape": [2], "values": [400, 5]}}])
def test_a_forged_fingerprint_is_another(run: Run, folder: Path, calibrator: mc.MCCT, data: object) -> None:
    document = json.loads((folder / "cal.json").read_text()) | {"data": data}
    document["checksum"] = persistence._checksum(document)
    (folder / "cal.json").write_text(json.dumps(document))
    result = run("evaluate", "test.npz", "-c", "cal.json", "--n-boot", 0)
    assert "fitted on these very data" not in result.stderr


@posix
def test_names_that_are_not_text(folder: Path) -> None:
    name = os.fsdecode(b"a\xff")
    os.rename("cal.npz", f"{name}.npz")
    for arguments in (
        ("fit", f"{name}.npz", "-m", "ts", "-o", f"{name}.json"),
        ("apply", f"{name}.json", f"{name}.npz", "-o", f"{name}.csv"),
    ):
        done = monocal(*arguments)
        assert done.returncode == 0, done.stderr
    assert r"a\udcff" in done.stderr
