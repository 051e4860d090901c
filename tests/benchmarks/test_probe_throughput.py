"""The benchmark runs and says what it promises; the numbers themselves are for a quiet machine."""

from __future__ import annotations

import json

import pytest

from benchmarks import probe_throughput


def test_last_line_is_json_with_the_promised_fields(monkeypatch, capsys):
    sizes = "--classes 30 --width 16 --folds 2 --units 1 --batch 64 --window 512 --steps 2 --rounds 1"
    monkeypatch.setattr("sys.argv", ["probe_throughput", *sizes.split()])
    probe_throughput.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["ratio"] == pytest.approx(result["rows_per_s"] / result["step_only_rows_per_s"], rel=1e-2)
    assert result["classifiers"] == 3
    assert result["peak_rss_mb"] > 0
