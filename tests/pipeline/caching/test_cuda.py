"""On a GPU: the same numbers as on the CPU, batches that do not fit, and processes that decode beside CUDA."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from pipeline.backbones import groups, make_backbone
from pipeline.caching.batch_size import LARGEST, SMALLEST, find_batch_size
from tests.pipeline.caching.test_job import cache, tree

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

VIEWS = {"views": ("center",), "random_views": 3, "classifier": "required"}


@pytest.fixture
def on_gpu(backbone):
    return {**backbone, "device": "cuda"}


@pytest.mark.parametrize("compile", ["on", "off"])
def test_a_gpu_caches_what_a_cpu_caches(packed, backbone, on_gpu, tmp_path, compile):
    """But for bfloat16's eight bits of mantissa; labels, keys and views are equal."""
    cpu = cache(packed, tmp_path / "cpu", backbone, batch_size=16, **VIEWS)
    gpu = cache(packed, tmp_path / "gpu", {**on_gpu, "compile": compile}, batch_size=16, **VIEWS)
    for unit in range(len(packed.paths)):
        for name in ("key", "label", "view_params"):
            np.testing.assert_array_equal(cpu.read(name, unit), gpu.read(name, unit))
        one, other = (store.read("embedding", unit).astype(np.float64) for store in (cpu, gpu))
        cosine = (one * other).sum(-1) / np.linalg.norm(one, axis=-1) / np.linalg.norm(other, axis=-1)
        assert cosine.min() > 0.999
        np.testing.assert_allclose(cpu.read("task_loss", unit), gpu.read("task_loss", unit), rtol=0.05, atol=0.05)


def test_processes_and_threads_that_decode_give_the_same_bytes(packed, on_gpu, tmp_path):
    for decode in ("threads", "processes"):
        cache(packed, tmp_path / decode, on_gpu, batch_size=16, decode=decode, workers=3, **VIEWS)
    one, other = tree(tmp_path / "threads"), tree(tmp_path / "processes")
    assert {k: v for k, v in one.items() if k != "run.json"} == {k: v for k, v in other.items() if k != "run.json"}


def test_a_second_run_gives_the_same_bytes(packed, on_gpu, tmp_path):
    for name in ("one", "two"):
        cache(packed, tmp_path / name, on_gpu, batch_size=16, **VIEWS)
    assert tree(tmp_path / "one") == tree(tmp_path / "two")


def test_a_batch_that_does_not_fit_is_run_in_halves(packed, tmp_path):
    """With a limit on torch's memory that real allocations run into; what is cached is nearly the same."""
    values = {"model": "resnet10t", "weights": "random", "size": 224, "device": "cuda", "compile": "off"}
    whole = cache(packed, tmp_path / "whole", values, batch_size=128, random_views=8, views=())
    [group] = groups([make_backbone(values)])
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    group.represent(torch.rand(128, 3, 224, 224, device="cuda"))
    peak, total = torch.cuda.max_memory_reserved(), torch.cuda.get_device_properties(0).total_memory
    del group
    torch.cuda.empty_cache()
    try:
        torch.cuda.set_per_process_memory_fraction(0.6 * peak / total)
        halved = cache(packed, tmp_path / "halved", values, batch_size=128, random_views=8, views=())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    told = [path.read_text() for path in (tmp_path / "halved" / "telemetry").rglob("*.json")]
    assert any(re.search(r'"halved_batches": ?[1-9]', text) for text in told), told
    for unit in range(len(packed.paths)):
        one, other = (store.read("embedding", unit).astype(np.float64) for store in (whole, halved))
        np.testing.assert_allclose(one, other, rtol=0.05, atol=0.02)


def test_the_search_ends_at_a_size_that_is_run(on_gpu):
    [group] = groups([make_backbone({**on_gpu, "compile": "off"})])
    size = find_batch_size(group)
    assert SMALLEST <= size <= LARGEST
    assert size & (size - 1) == 0
