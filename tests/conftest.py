"""For all tests."""

import signal
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from pipeline.interruption import forget
from tests.ranks import Ranks

# Busy machines are slow at times: how long an example takes says nothing about what is tested.
settings.register_profile("hedgerow", deadline=None)
settings.load_profile("hedgerow")

# A shell that starts the tests in the background has them ignore Ctrl-C, and with them every process that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """As in the processes that tests start: bytes are equal for equal numbers of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _nobody_asks() -> Iterator[None]:
    """Whoever asked work to stop in a test did not mean the next one."""
    yield
    forget()


@pytest.fixture(scope="session")
def ranks() -> Iterator[Ranks]:
    """Processes that train together. Mark the tests that use it ``xdist_group("ranks")``: they start slowly."""
    ranks = Ranks(3)
    yield ranks
    ranks.close()
