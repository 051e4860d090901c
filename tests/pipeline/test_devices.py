"""One way to say a device, one message each for what is wrong with it."""

from __future__ import annotations

import pytest
import torch

from pipeline.devices import device_named
from pipeline.errors import UserError


def test_auto_is_a_gpu_where_there_is_one(monkeypatch):
    for there, meant in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert device_named("auto", "probe.device") == torch.device(meant)
    assert device_named("cpu", "probe.device") == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu", r"^probe\.device: 'gpu' is no device\. Valid: auto, cpu, cuda, cuda:<index>\.$"),
        ("cuda:99", r"^probe\.device: 'cuda:99' is not there; torch sees \d+ GPUs\.$"),
        ("meta", r"^probe\.device: 'meta' cannot be used here \(.+\)\.$"),  # holds no values
        ("xpu", r"^probe\.device: 'xpu' cannot be used here \(.+\)\.$"),
    ],
)
def test_what_is_not_there_is_named_with_its_key(name, said):
    with pytest.raises(UserError, match=said):
        device_named(name, "probe.device")
