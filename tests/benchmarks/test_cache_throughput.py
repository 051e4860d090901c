"""The benchmark runs and says what it promises; the numbers themselves are for a quiet machine."""

from __future__ import annotations

import json

import pytest

from benchmarks import _cache_throughput


def test_last_line_is_json_with_the_promised_fields(monkeypatch, capsys):
    arguments = ["--models", "resnet10t", "--seconds", "0.1", "--rounds", "2", "--views", "2", "--device", "cpu"]
    monkeypatch.setattr("sys.argv", ["cache_throughput", *arguments])
    _cache_throughput.main("about")
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["ratio"] == pytest.approx(result["cache_images_views_per_s"] / result["forward_only_per_s"], rel=1e-2)
    assert len(result["ratios"]) == 2
    assert min(result["ratios"]) <= result["ratio"] <= max(result["ratios"])
    assert result["one_view_at_a_time_ratio"] > 0
    assert (result["views"], result["batch_size"], result["decode"]) == (2, 32, "threads")
    assert result["peak_rss_mb"] > 0
    assert result["models"]["resnet10t"]["ratio"] == result["ratio"]
