"""The benchmark runs and says what it promises; the numbers themselves are for a quiet machine."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks import train_throughput


def test_last_line_is_json_with_the_promised_fields(monkeypatch, capsys):
    arguments = ["--gb", "0.0005", "--width", "16", "--window", "4096", "--rounds", "1", "--windows", "1"]
    monkeypatch.setattr("sys.argv", ["train_throughput", *arguments])
    train_throughput.main()
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["rows"] == 2 * train_throughput.UNIT_ROWS
    assert result["bytes_per_sample"] == pytest.approx(16 * 2 + 4, rel=0.05)  # and crc32c, and the shards' indices
    assert result["ours_over_ceiling"] == pytest.approx(result["ours"] / result["ceiling"], rel=1e-2)
    assert result["ours_over_baseline"] == pytest.approx(result["ours"] / result["baseline"], rel=1e-2)
    assert result["peak_rss_mb"] > 0


def test_the_baselines_rows_are_the_stores(tmp_path):
    store = train_throughput.write_stores(tmp_path, 2, 16)
    rows = train_throughput.OneAtATime(tmp_path / "rows.bin", 16)
    assert len(rows) == 2 * train_throughput.UNIT_ROWS
    for index in (0, 9000):
        embedding_D, label = rows[index]
        unit, row = divmod(index, train_throughput.UNIT_ROWS)
        stored = torch.from_numpy(store.read("embedding", unit, view=0, start=row, stop=row + 1)[0])
        assert torch.equal(embedding_D.half(), stored)
        assert label == store.read("label", unit, start=row, stop=row + 1)[0]
