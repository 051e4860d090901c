"""Collections with made-up representations, as an evaluation gives them: rows, heads, scores on disk, images."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from PIL import Image

from pipeline.analyses import Analysis, chosen
from pipeline.analyses._records import Records
from pipeline.annotations import Annotations
from pipeline.config import config
from pipeline.evaluation import Contender, Rows, Scorer, collection_results, row_table, score_all
from pipeline.evaluation.collection import Collection, Sources
from pipeline.files import read_json
from pipeline.heads.base import Head, HeadOutput, Needs, Summary
from pipeline.progress import Silent


@config
class NoConfig:
    pass


class Column(Head):
    """Says what stands in one column of the representation, with noise that depends on the seed."""

    Config = NoConfig

    def __init__(self, column: int, noise: float, seed: int) -> None:
        super().__init__(NoConfig(), seed=seed)
        self.column, self.noise = column, noise

    @property
    def needs(self) -> Needs:
        return Needs(training=False)

    def prepare(self, summary: Summary) -> None:
        pass

    def forward(self, representation_BD: torch.Tensor) -> HeadOutput:
        generator = torch.Generator().manual_seed(self.seed)
        noise_B = self.noise * torch.randn(len(representation_BD), generator=generator)
        score_B = representation_BD[:, self.column].abs() + noise_B
        return HeadOutput(embedding_BE=representation_BD, uncertainty={"score": score_B}, primary="score")


class Cloud(Column):
    """Has an embedding of its own, and a posterior around it."""

    def forward(self, representation_BD: torch.Tensor) -> HeadOutput:
        output = super().forward(representation_BD)
        return HeadOutput(embedding_BE=representation_BD.tanh(), uncertainty=output.uncertainty, primary="score")

    def sample(self, representation_BD: torch.Tensor, num_samples: int, generator: torch.Generator) -> torch.Tensor:
        noise_SBE = torch.randn((num_samples, *representation_BD.shape), generator=generator)
        return representation_BD.tanh() + 0.3 * noise_SBE


def cloud() -> Contender:
    """A method with a posterior."""
    heads = {seed: Cloud(0, 0.4, seed) for seed in range(2)}
    return Contender(name="mc_info_nce", role="compare", config={"kind": "mc_info_nce"}, heads=heads)


class OnSphere(Column):
    """Has a posterior vMF(μ, κ) whose mode is the representation's direction."""

    def forward(self, representation_BD: torch.Tensor) -> HeadOutput:
        (score_B,) = super().forward(representation_BD).uncertainty.values()
        spread_B = 0.005 + 0.05 * score_B.abs()
        name = "inverse_concentration"
        return HeadOutput(embedding_BE=representation_BD, uncertainty={name: spread_B}, primary=name)


def on_sphere() -> Contender:
    """A method whose score is 1/κ."""
    heads = {seed: OnSphere(0, 0.1, seed) for seed in range(2)}
    return Contender(name="elk", role="compare", config={"kind": "elk"}, heads=heads)


def contenders() -> list[Contender]:
    def make(name: str, role: Any, column: int, noise: float, seeds: int) -> Contender:
        heads = {seed: Column(column, noise, seed) for seed in range(seeds)}
        return Contender(name=name, role=role, config={"kind": name}, heads=heads)

    return [
        make("loss_prediction", "head", 0, 0.3, 3),
        make("loss_prediction_l2", "compare", 0, 0.5, 3),
        make("classifier_entropy", "baseline", 0, 0.9, 1),
        make("inverse_norm", "baseline", 1, 0.0, 1),
        make("random", "baseline", 2, 5.0, 3),
    ]


def made_up_rows(rows: int, classes: int, seed: int) -> Rows:
    """Column 0 grows with the distance from the class centre, so it is a good uncertainty."""
    rng = np.random.default_rng(seed)
    label_N = rng.integers(0, classes, rows).astype(np.int32)
    label_N[0], label_N[1] = classes, -1  # one alone, one unlabelled
    spread_N1 = rng.gamma(1.5, 0.55, size=(rows, 1))
    centre_CD = rng.normal(size=(classes + 1, 12))
    representation_ND = centre_CD[label_N] + spread_N1 * rng.normal(size=(rows, 12))
    representation_ND[:, 0] = 0.6 * spread_N1[:, 0]
    return Rows(
        representation_ND=representation_ND.astype(np.float32),
        label_N=label_N,
        unit_N=np.zeros(rows, dtype=np.int32),
        keys=[f"image/{i:05d}" for i in range(rows)],
        class_names=tuple(f"class <{i}>" for i in range(classes + 1)),
        stored=3 * rows,
        quarantined=4,
    )


def votes(rows: Rows, people: int = 5) -> Annotations:
    """Of some people each, who are of one mind where column 0 is small; nobody was asked about the last row."""
    rng = np.random.default_rng(3)
    doubt_N = np.clip(rows.representation_ND[:, 0], 0.05, 0.6)
    changed_NP = rng.random((len(rows.keys), people)) < doubt_N[:, None]
    choice_NP = np.where(changed_NP, rng.integers(0, 4, changed_NP.shape), 0)
    votes_NA = (choice_NP[:, :, None] == np.arange(4)).sum(axis=1)
    votes_NA[-1] = 0
    return Annotations(keys=tuple(rows.keys), votes_NA=votes_NA, vote_names=("ant", "bee", "cat", "dog"))


class MadeUpChosen:
    """Stands for :class:`pipeline.evaluation.rows.ChosenRows`: other views are the center's, ever noisier."""

    def __init__(
        self, rows: Rows, views: Sequence[str] = ("center",), columns: Mapping[str, Any] | None = None
    ) -> None:
        no_classifier = {"task_loss": np.full(len(rows.keys), np.nan), "label": rows.label_N}
        self._rows, self.columns, self.keys, self.stored = rows, columns or no_classifier, rows.keys, rows.stored
        self.store = SimpleNamespace(layout=SimpleNamespace(views=tuple(views)), class_names=rows.class_names, run={})

    def rows(self, view: str) -> Rows:
        assert view == "center"
        return self._rows

    def column(self, array: str, view: str | None = None) -> Any:
        return self.columns[array]

    def representation(self, view: str) -> Any:
        place = self.store.layout.views.index(view)
        noise = np.random.default_rng(place).normal(size=self._rows.representation_ND.shape)
        return (self._rows.representation_ND + 0.2 * place * noise).astype(np.float32)


def write_images(path: Path, rows: Rows) -> Path:
    """A tar with a small image for each key."""
    rng = np.random.default_rng(9)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for key in rows.keys:
            buffer = io.BytesIO()
            Image.fromarray(rng.integers(0, 255, (5, 7, 3), dtype=np.uint8)).save(buffer, "PNG")
            info = tarfile.TarInfo(f"{key}.png")
            info.size = len(buffer.getvalue())
            tar.addfile(info, io.BytesIO(buffer.getvalue()))
    return path


def collection(
    records: Records,
    unit: str,
    role: str,
    rows: Rows,
    methods: Sequence[Contender] | None = None,
    *,
    chosen_rows: Any = None,
    images: bool = True,
    annotations: Annotations | None = None,
) -> Collection:
    """Score rows and write what was scored, as the stage does."""
    methods = contenders() if methods is None else list(methods)
    scorer = Scorer(rows)
    scored = score_all(scorer, methods, Silent())
    about = {"title": f"Made-up {unit}", "source": "a generator", "licence": "none", "citation": ""}
    named = {"dataset": unit, "role": role, "about": about, "digest": "ab" * 32}
    records.write_scored(unit, row_table(scorer, scored), {**named, **collection_results(scorer, scored)})
    tars = [write_images(Path(records.folder) / "tars" / f"{unit}.tar", rows)] if images else None
    sources = Sources(
        table=records.table(unit),
        chosen=lambda: chosen_rows or MadeUpChosen(rows),
        contenders=lambda: methods,
        tars=None if tars is None else lambda: tars,
        device="cpu",
        annotations=lambda: annotations,
    )
    return Collection(read_json(records.result(unit)), sources)


def evaluation(
    folder: Path, roles: Mapping[str, str], asked: Sequence[str] | Sequence[Analysis], *, rows: int = 300
) -> tuple[Records, list[Collection]]:
    """Some collections, measured by some analyses."""
    analyses = [item for item in asked if isinstance(item, Analysis)] or chosen([str(item) for item in asked])
    records = Records(folder, list(roles), analyses)
    made = []
    for place, (unit, role) in enumerate(roles.items()):
        made.append(collection(records, unit, role, made_up_rows(rows, 20, place)))
        records.measure(made[-1], Silent())
    records.compare(made, Silent())
    return records, made
