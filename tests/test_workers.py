"""A second process: what it gives back, and that it can be ended at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import psutil
import pytest

import monocal as mc
from monocal.report import Trial, compare_methods
from monocal.workers import Worker, WorkerDied


def process_of(worker: Worker) -> psutil.Process:
    return psutil.Process(worker.call(os.getpid))


def test_results_errors_and_warnings_come_back() -> None:
    class Own:  # of this test: sent by value
        value = np.arange(3)

    def warned(thing):
        print("this must not be taken for an answer")
        warnings.warn("careful", mc.OrderWarning, stacklevel=1)
        return thing.value * 2

    class OddError(Exception):
        def __init__(self, one, two):
            super().__init__(f"{one} and {two}")

    def failing(error):
        raise error

    def odd():
        raise OddError(1, 2)

    with Worker() as worker:
        with pytest.warns(mc.OrderWarning, match="careful"):
            assert worker.call(warned, Own()).tolist() == [0, 2, 4]
        with pytest.raises(mc.MissingExtraError, match="no torch"):
            worker.call(failing, mc.MissingExtraError("no torch"))
        with pytest.raises(RuntimeError, match="OddError: 1 and 2"):
            worker.call(odd)
        assert worker.call(abs, -3) == 3


def test_it_is_ended_in_time_whatever_it_does() -> None:
    def deaf():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            with contextlib.suppress(BaseException):
                time.sleep(0.01)

    with Worker() as worker:
        process = process_of(worker)
        with pytest.raises(TimeoutError, match=r"stopped after 0\.2 seconds"):
            worker.call(deaf, seconds=0.2)
        assert not process.is_running()
    with Worker() as worker:
        assert worker.call(abs, -1, seconds=np.inf) == 1


def test_a_death_is_reported() -> None:
    with Worker() as worker:
        process = process_of(worker)
        with pytest.raises(WorkerDied, match=r"ended \(-9\)"):
            worker.call(os.kill, process.pid, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a system with SIGKILL")
def test_it_ends_with_its_parent() -> None:
    code = (
        "import os, time\nfrom monocal.workers import Worker\nworker = Worker()\n"
        "print(worker.call(os.getpid), flush=True)\nworker.call(time.sleep, 600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        process = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    assert psutil.wait_procs([process], timeout=600)[1] == []


def test_no_limit_crashes_methods_that_load_torch() -> None:
    limit = 0.5
    data = mc.data.synthetic(200, 4, seed=0)
    methods = {"network": mc.ParameterizedTemperatureScaling(max_epochs=10**6, patience=10**6)}
    result = compare_methods(Trial.of(data, None), methods, n_boot=0, time_limit=limit)
    assert result["network"].note == f"stopped after {limit / 3:.1f} seconds"


def test_a_method_that_cannot_be_sent_is_judged_here() -> None:
    class Own(mc.TemperatureScaling):
        def __reduce__(self):
            raise TypeError("stays here")

    data = mc.data.synthetic(200, 4, seed=0)
    result = compare_methods(Trial.of(data, None), {"own": Own()}, n_boot=0)
    assert result.recommended == "own"


def test_an_interrupted_call_leaves_no_answer_to_the_next():
    worker = Worker()
    before = signal.signal(signal.SIGALRM, _interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.5)
        with pytest.raises(KeyboardInterrupt):
            worker.call(time.sleep, 20)
        with pytest.raises((WorkerDied, ValueError)):  # the conversation is over
            worker.call(int, "7")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        worker.close()


def _interrupt(*_):
    raise KeyboardInterrupt
