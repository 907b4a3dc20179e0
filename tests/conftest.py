"""What several test files share."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from real_logits import LogitsSet, load_shared_logits

# A shell that starts the tests in the background lets them ignore Ctrl-C, and what they start would inherit it.
with contextlib.suppress(ValueError):  # not the main thread
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# The same examples every time, and no clock: the machine may be busy.
NO_CLOCK = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("suite", derandomize=True, **NO_CLOCK)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def shared_logits() -> Callable[[str], LogitsSet]:
    """``shared_logits(name)`` loads a real set, or skips with a sentence."""
    return load_shared_logits
