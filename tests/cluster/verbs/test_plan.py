"""What ``submit plan`` says of datasets."""

import json
from pathlib import Path

import pytest

from cluster.submit import main
from tests import published


def test_it_says_which_datasets_are_there_and_where_the_others_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    published.make_cub200(tmp_path / "data/cub200")
    words = ["plan", "stage=evaluate", "evaluate.datasets=[cub200,cifar10]"]
    assert main(words) == 0
    waits, there, missing, _ = capsys.readouterr().out.splitlines()
    assert waits.split()[:3] == ["evaluate", "waits", "for"]  # and says it all the same
    assert there.strip() == "cub200: there"
    for part in ("no folder at data/cifar10", "batches.meta.txt", "www.cs.toronto.edu/~kriz/cifar.html"):
        assert part in missing
    assert main([*words, "--json"]) == 0
    sources = json.loads(capsys.readouterr().out)["stages"]["evaluate"]["sources"]
    assert sources == {"cub200": "", "cifar10": missing.strip()}
