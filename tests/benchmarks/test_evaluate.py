"""The benchmark runs and says what it promises; the numbers themselves are for a quiet machine."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import evaluate


def test_last_line_is_json_with_the_promised_fields(monkeypatch, capsys):
    pytest.importorskip("faiss")
    sizes = "--rows 300 --dim 16 --count 3 --rounds 1 --threads 1"
    monkeypatch.setattr("sys.argv", ["evaluate", *sizes.split()])
    monkeypatch.setattr(evaluate.compare, "__kwdefaults__", {"run": evaluate.measure})  # in this process
    evaluate.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["rows"], result["dim"]) == (300, 16)
    assert result["agreement"] == 1
    assert min(result[key] for key in ("seconds", "faiss_seconds", "ratio_to_faiss", "cpu_ratio")) >= 0
    assert result["peak_rss_mb"] > 0


def test_agreement_leaves_the_row_itself_out_wherever_it_stands():
    assert evaluate.agreement(np.array([[1, 2], [0, 2]]), np.array([[0, 1, 2], [2, 0, 1]])) == 0.5
