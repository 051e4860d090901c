from __future__ import annotations

from pathlib import Path

import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra

from cluster.compose import compose
from pipeline.errors import UserError


def test_names_of_evaluate_are_resolved_with_the_same_settings(house: Path) -> None:
    composed = compose(["++data_root=/big", "++compare.loss_prediction_l2.hidden=7"])
    experiment = composed.experiment
    assert list(experiment.compare) == ["inverse_norm", "loss_prediction_l2"]
    assert experiment.compare["loss_prediction_l2"]["hidden"] == 7
    assert experiment.compare["loss_prediction_l2"]["objective"] == "l2"
    assert experiment.head["hidden"] == 512
    assert experiment.downstream["pairs_unseen"]["kind"] == "digit_pairs"
    assert set(composed.resolved) >= {"name", "dataset", "head", "cluster", "gather", "train", "release", "downstream"}


def test_defaults_are_filled_in_so_that_writing_them_changes_nothing(house: Path) -> None:
    assert compose(["++head.layers=2", "++train.seed=0"]).resolved == compose([]).resolved


def test_local_yaml_changes_defaults_and_the_command_line_has_the_last_word(house: Path) -> None:
    text = (
        "# @package _global_\ndefaults:\n  - override /experiment: other\ndata_root: /local\nruns_root: /local-runs\n"
    )
    (house / "local.yaml").write_text(text)
    experiment = compose(["++data_root=/mine"]).experiment
    assert (experiment.name, experiment.data_root, experiment.runs_root) == (
        "other",
        Path("/mine"),
        Path("/local-runs"),
    )
    assert compose(["experiment=demo"]).experiment.name == "demo"


def test_a_folder_of_ones_own_adds_options(house: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "head").mkdir(parents=True)
    (tmp_path / "mine" / "head" / "wide.yaml").write_text("kind: loss_prediction\nhidden: 2048\n")
    assert compose(["head=wide"], folders=[tmp_path / "mine"]).experiment.head["hidden"] == 2048


def test_all_that_is_wrong_is_said_at_once(house: Path) -> None:
    with pytest.raises(UserError) as error:
        compose(["++train.sedes=[1]", "++gather.units=10", "++head.margin=-1", "++compare.nope.a=1", "++train.seeds=x"])
    lines = str(error.value).splitlines()
    assert (
        "train.sedes: unknown key. Did you mean 'seeds'? "
        "Valid: units, seed, failing, broken, interrupt, terminate, output, seeds." in lines
    )
    assert "gather.units: Input should be less than or equal to 9 (got 10)" in lines
    assert "head.margin: Input should be greater than or equal to 0 (got -1)" in lines
    assert "unknown compare 'nope'. Valid: inverse_norm, loss_prediction_l2." in lines
    assert any(line.startswith("train.seeds: ") for line in lines)
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("++evaluate.compare=[l2]", "unknown head 'l2'."),
        ("++evaluate.datasets=pairs", "evaluate.datasets: write a list of names, e.g. evaluate.datasets=[pairs]."),
        ("++dataset=3", "the config does not compose: "),
        ("++data_root=${nowhere}", "the config does not compose: Interpolation key 'nowhere' not found"),
        ("~head.nope", "the config does not compose: Could not delete from config. 'head.nope' does not exist."),
        ("++gather=3", "gather: must be keys and values, not 3; e.g. gather.<key>=<value>."),
    ],
)
def test_what_does_not_compose_is_one_clear_line(house: Path, override: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        compose([override])
    assert str(error.value).startswith(message)


def test_hydra_keeps_no_state(house: Path) -> None:
    before = set(ConfigStore.instance().repo)
    compose([])
    assert set(ConfigStore.instance().repo) == before
    assert not GlobalHydra.instance().is_initialized()
