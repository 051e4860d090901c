from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from cluster import compose as module
from cluster.compose import compose
from cluster.overrides import read
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


@pytest.mark.parametrize("written", ["12:00:00", "90:00", "1-00:30:00", "0:45", "-1:30", "90", "0x10"])
def test_a_time_in_a_file_is_what_it_looks_like(house: Path, tmp_path: Path, written: str) -> None:
    """Quoted or not, in a file or on the command line; YAML 1.1 reads 12:00:00 as 43,200, which would be minutes."""
    site = tmp_path / "mine" / "cluster"
    site.mkdir(parents=True)
    (site / "site.yaml").write_text(f"kind: slurm\nsbatch: {{x: {written}}}\n")
    composed = compose(["cluster=site"], folders=[tmp_path / "mine"])
    found = composed.cluster["sbatch"]["x"]
    assert found == (int(written, 0) if written in ("90", "0x10") else written)
    assert yaml.safe_load("90:00") == 5400, "elsewhere nothing has changed"
    text = OmegaConf.to_yaml(OmegaConf.create(dict(composed.resolved)))
    assert yaml.safe_load(text)["cluster"]["sbatch"]["x"] == found, "whoever reads the record of the run"


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
        ("++evaluate.compare=[3]", "evaluate.compare: write a list of names, e.g. evaluate.compare=[<name>]."),
        ("++evaluate.compare=[random,elk,random]", "evaluate.compare: random stands there twice."),
        ("++dataset=3", "the config does not compose: "),
        ("++data_root=${nowhere}", "the config does not compose: Interpolation key 'nowhere' not found"),
        ("~head.nope", "the config does not compose: Could not delete from config. 'head.nope' does not exist."),
        ("++head.margin=???", "head.margin: needs a value, e.g. head.margin=…"),
        ("++gather=3", "gather: must be keys and values, not 3; e.g. gather.<key>=<value>."),
    ],
)
def test_what_does_not_compose_is_one_clear_line(house: Path, override: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        compose([override])
    assert str(error.value).startswith(message)


def test_one_head_under_two_names_is_refused(house: Path) -> None:
    same = ["++evaluate.compare=[loss_prediction,random,loss_prediction_l2]"]
    assert len(compose(same).experiment.compare) == 3
    with pytest.raises(UserError, match=r"^evaluate\.compare: loss_prediction_l2 is the same head as loss_prediction,"):
        compose([*same, "++compare.loss_prediction_l2.objective=ranking"])


def test_hydra_keeps_no_state(house: Path) -> None:
    before = set(ConfigStore.instance().repo)
    compose([])
    assert set(ConfigStore.instance().repo) == before
    assert not GlobalHydra.instance().is_initialized()


@pytest.mark.parametrize(
    ("overrides", "times"),
    [
        ([], 1),
        (["evaluate.datasets=[]", "evaluate.compare=[loss_prediction_l2]"], 1),
        (["evaluate.datasets=[pairs_unseen]", "downstream.pairs_unseen.root=/there"], 1),
        (["++evaluate.datasets=[]"], 1),  # as the command line writes it
        (["++evaluate={datasets: []}"], 3),  # this way of writing is not looked at
        (["experiment=other"], 1),
    ],
)
def test_a_guess_of_the_names_saves_time_and_changes_nothing(
    house: Path, monkeypatch: pytest.MonkeyPatch, overrides: list[str], times: int
) -> None:
    calls = []
    composing = module._hydra
    monkeypatch.setattr(module, "_hydra", lambda *given: calls.append(given) or composing(*given))
    found = compose(overrides)
    assert len(calls) == times
    monkeypatch.setattr(module, "_as_guessed", lambda *given: None)
    assert compose(overrides) == found


def test_a_recipe_decides_what_is_not_given(house: Path) -> None:
    head = compose([]).experiment.head
    assert head["group"] == compose(["recipe=paper"]).experiment.head["group"] == 2
    fast = compose(["recipe=fast"]).experiment
    assert fast.head["group"] > 2
    assert compose(["recipe=fast", "++head.group=4"]).experiment.head["group"] == 4
    assert compose(["recipe=fast", "++recipe.group=5"]).experiment.head["group"] == 5
    with pytest.raises(UserError, match=r"recipe\.size: unknown key"):
        compose(["++recipe.size=5"])


def test_an_experiment_knows_how_it_was_asked_for(house: Path, tmp_path: Path) -> None:
    composed = compose(["experiment=other", "++evaluate.datasets=[]"], folders=[tmp_path])
    words = ("--config-dir", str(tmp_path), "experiment=other", "evaluate.datasets=[]")
    assert composed.experiment.settings == words
    again = read(["stage=evaluate", *words])
    assert compose(again.overrides, folders=again.folders) == composed
    assert "settings" not in composed.resolved


def test_where_an_experiment_runs_is_not_of_how_it_was_asked_for(house: Path) -> None:
    """A report that names its command has the same bytes from a cluster as from a laptop."""
    composed = compose(["cluster=slurm", "++cluster.time=20", "++runs_root=/scratch", "experiment=other"])
    assert composed.experiment.settings == ("experiment=other",)
