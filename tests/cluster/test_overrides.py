from __future__ import annotations

from pathlib import Path

import pytest

from cluster.overrides import read
from pipeline.errors import UserError

pytestmark = pytest.mark.usefixtures("house")


def test_verb_stages_and_settings_are_told_apart() -> None:
    line = read(["plan", "stage=[train,gather]", "head=random", "train.seeds=[0,1]", "--json"])
    assert (line.verb, line.stages, line.json, line.help) == ("plan", ("train", "gather"), True, False)
    assert line.overrides == ("head=random", "++train.seeds=[0,1]")
    assert read(["stage=all"]).stages == ("all",)
    assert read(["stage=gather"]).verb == "submit"


def test_short_key_is_qualified_by_its_only_owner() -> None:
    assert read(["stage=[gather,train]", "seeds=[3]"]).overrides == ("++train.seeds=[3]",)
    assert read(["stage=train", "seed=1"]).overrides == ("++train.seed=1",)
    assert read(["stage=train", "data_root=/big disk"]).overrides == ("++data_root=/big disk",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["stage=[train,gather]", "seed=1"], "'seed' is a key of several stages; say which: train.seed, gather.seed."),
        (
            ["stage=train", "sedes=[1]"],
            "unknown key 'sedes'. Did you mean 'seeds'? Valid: backbone, beside, broken, cluster, compare, data_root, "
            "dataset, downstream, evaluate, experiment, failing, gather, head, interrupt, name, output, probe, "
            "recipe, release, runs_root, seed, seeds, terminate, train, units.",
        ),
        (
            ["stage=trian"],
            "unknown stage 'trian'. Did you mean 'train'? Valid: all, evaluate, gather, probe, release, train.",
        ),
        (
            ["experiment=dmeo", "stage=train"],
            "unknown experiment 'dmeo'. Did you mean 'demo'? Valid: demo, other.",
        ),
        (
            ["stauts"],
            "unknown verb 'stauts'. Did you mean 'status'? Valid: cancel, compact, leaderboard, logs, merge, plan, "
            "quarantine, retry, status, submit, verify.",
        ),
        (
            ["stage=train", "--fast"],
            "cannot read '--fast': settings are written key=value. Verbs: cancel, compact, leaderboard, logs, merge, "
            "plan, quarantine, retry, status, submit, verify; they come first.",
        ),
        (
            ["stage=train,gather"],
            "cannot read 'stage=train,gather': for several values write a list, key=[first,second].",
        ),
        (
            ["stage=train", "seeds=[1"],
            "cannot read 'seeds=[1': no viable alternative at input '[1'. Write key=value; quote with '…' what has "
            "special signs.",
        ),
        (
            ["stage=train", "--config-dir", "nowhere"],
            "--config-dir: 'nowhere' is not a folder. Give one with groups like configs/, e.g. head/.",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        read(arguments)
    assert str(error.value) == message


def test_command_can_be_given_again(tmp_path: Path) -> None:
    folder = tmp_path / "my configs"
    folder.mkdir()
    line = read(["plan", f"--config-dir={folder}", "stage=[gather,train]", "head=random", "name='a b'"])
    command = f"submit --config-dir '{folder}' 'stage=[gather,train]' head=random "
    assert line.command() == command + """'name='"'"'a b'"'"''"""
    assert line.command(["train head=inverse_norm"]).startswith(
        f"submit --config-dir '{folder}' stage=train head=inverse_norm "
    )
    assert "head=random" not in line.command(["train head=inverse_norm"])
