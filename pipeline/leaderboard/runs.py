"""One run of ``stage=evaluate`` as a leaderboard reads it: what it says of each method, and what makes it that one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.digests import difference, digest
from pipeline.errors import UserError
from pipeline.files import read_bytes
from pipeline.metrics.undefined import Score, Undefined
from pipeline.places import Place
from pipeline.report.look import ENTROPY
from pipeline.run_record import RUN_RECORD
from pipeline.sealed import read_open
from pipeline.training.config import TrainingConfig

METRICS = ("recall_at_1", "r_auroc", "aurc", "e_aurc", "augrc")
RESULTS, CONFIG = "results.json", "config.yaml"
OF_A_RUN = frozenset({"seeds", "output", *TrainingConfig.operational})  # of train_head, what makes no other method
Numbers = Mapping[str, Any]
Found = Mapping[str, Mapping[str, Mapping[int, Score]]]  # dataset → metric → seed → value


@dataclass(frozen=True, kw_only=True)
class Method:
    """All that one run says of a method.

    Attributes:
        identity: the same for the same method, its seeds aside.
        name, role: of the contender.
        found: its values.
    """

    identity: str
    name: str
    role: str
    found: Found


def read_run(run: Place) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The results of a run, and its meaning.

    Raises:
        UserError: a file is missing or damaged.
    """
    if not (run / RESULTS).is_file():
        raise UserError(
            f"leaderboard: {run} has no {RESULTS}: it is no finished run of stage=evaluate. Give its folder, e.g. "
            "runs/evaluate-…, or finish it with `submit stage=evaluate`."
        )
    if not (run / RUN_RECORD).is_file():
        raise UserError(f"leaderboard: {run} has no {RUN_RECORD}, so nothing says what was trained. Copy it whole.")
    meaning: Mapping[str, Any] = read_open(run / RUN_RECORD)["meaning"]
    return read_open(run / RESULTS), meaning


def refuse_other_images(result: Mapping[str, Any], first: Place, known: Mapping[str, Any], run: Place) -> None:
    """One name, and numbers that cannot stand in one column: other images, or others that are judged."""
    images, others = known.get("images_sha256"), result.get("images_sha256")  # older records have none
    lines = difference(known["counts"], result["counts"])
    if not lines and images and others and images != others:
        lines = ["as many, with other keys or labels"]
    if lines:
        raise UserError(
            f"leaderboard: {first} and {run} have other images of {result['dataset']} ({'; '.join(lines)}). Compare "
            "runs on the same ones, or evaluate one of them again with the dataset's settings of the other."
        )


def backbone_name(values: Mapping[str, Any], known: dict[str, str]) -> str:
    """A name for the backbone, and another one for another backbone of the same name."""
    mark = digest(values)
    if mark not in known:
        name = str(values.get("model") or values.get("path") or values.get("source"))
        known[mark] = f"{name} ({mark[:6]})" if name in known.values() else name
    return known[mark]


def methods(results: Sequence[Mapping[str, Any]], run: Place, meaning: Mapping[str, Any]) -> list[Method]:
    """What some collections of a run say of each method.

    Raises:
        UserError: the file that says how heads were trained is damaged.
    """
    training = _training(run)
    found: dict[str, Method] = {}
    for result in results:
        for item in result["contenders"]:
            if item["seeds"]:
                mark = _identity(item, training, meaning)
                new = Method(identity=mark, name=item["name"], role=item["role"], found={})
                numbers = {metric: item["scores"][item["primary"]].get(metric, item.get(metric)) for metric in METRICS}
                values = {metric: _by_seed(of, item["seeds"]) for metric, of in numbers.items()}
                known = found.get(mark, new)
                found[mark] = replace(known, found={**known.found, result["dataset"]: values})
    return list(found.values())


def _identity(item: Mapping[str, Any], training: Any, meaning: Mapping[str, Any]) -> str:
    """What makes two contenders of the same backbone the same method, their seeds aside."""
    method = {"name": _distinguishing(item, training), "config": item["config"], "metric": meaning["config"]["metric"]}
    if item["role"] == "baseline":
        # an entropy is that of its classifier; the other baselines have nothing but the representation
        return digest({**method, "probe": meaning["inputs"].get("probe") if item["name"] == ENTROPY else None})
    # what it learnt from; the digest of its training has the seeds in it
    read = {stage: mark for stage, mark in meaning["inputs"].items() if stage != "train_head"}
    if training is None:
        training = meaning["inputs"]  # with the seeds: each run is a method of its own
    return digest({**method, "training": training, "dataset": meaning["dataset"], "read": read})


def _distinguishing(item: Mapping[str, Any], training: Any) -> str:
    """What a name says that the settings do not: the point of a sweep, or that it is the head before training.

    The rest of it is the experiment's own word: one head is ``loss_prediction objective=l2`` where it is the
    experiment's, and ``loss_prediction_l2``, or whatever its file is called, where it stands beside another.
    """
    name, before = str(item["name"]), " before training"
    if name.endswith(before):
        return before
    if training is None:
        return name
    return name.rpartition(" ")[2] if any((training.get("sweep") or {}).values()) else ""


def _training(run: Place) -> Any:
    """How the heads of a run were trained, and looked for where they were, their seeds aside; None: not known."""
    if not (run / CONFIG).is_file():
        return None
    import yaml

    try:
        text = read_bytes(run / CONFIG)
        whole = yaml.safe_load(text)
        training, search = (dict(whole.get(stage) or {}) for stage in ("train_head", "tune"))
        if not training or not text.endswith(b"\n"):  # what is left of a file that was cut off may well be YAML
            raise ValueError("it is cut off")
    except (yaml.YAMLError, ValueError, TypeError, AttributeError):
        raise UserError(
            f"leaderboard: {run / CONFIG} is damaged. The command that made the run writes it again; without the file "
            "the run is taken for a method of its own."
        ) from None
    searched = {"search": {**search, "output": None}} if training.get("tuned") else {}
    return {**{key: value for key, value in training.items() if key not in OF_A_RUN}, **searched}


def _by_seed(numbers: Numbers, seeds: Sequence[int]) -> dict[int, Score]:
    if numbers["median"] is None:
        return dict.fromkeys(seeds, Undefined(numbers["undefined"]))
    return dict(zip(seeds, numbers["values"], strict=True))
