"""The settings of a run of Fashion-MNIST against MNIST (LAM, Sec. 4 and App. G)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline.config import config, to_plain

Count = Annotated[int, Field(ge=1)]
Method = Literal["deterministic", "deep_ensemble", "pfe", "hib", "mc_dropout", "lam_post_hoc", "lam_online"]


@config
class Settings:
    """The images, the network, how it learns, and what makes it uncertain."""

    seed: int  # of all that is drawn
    method: Method = "lam_online"

    # the images
    data_seed: int = 0  # of which training images are held out
    held_out: Count = 5000  # of the 60,000: for the choice of settings
    scored_on: Literal["test", "held_out"] = "test"  # held_out: those, and no strangers
    evaluated: Count = 10_000  # at most, of the images scored, and of the strangers
    calibrated: Count = 2500  # at most, of the images scored: those that ECE is of, whose samples are compared

    # the network
    channels: tuple[Count, Count] = (32, 64)  # of the two convolutions
    dimension: Annotated[int, Field(ge=2)] = 3  # E

    # how it learns
    steps: Count = 1000
    batch: Annotated[int, Field(ge=4)] = 32  # images
    lr: Annotated[float, Field(gt=0)] = 1e-3  # RMSProp's; falls to 0 by half a cosine
    negatives: Count = 6  # of each image of a batch, among the others
    mining: Literal["random", "head"] = "head"  # any, or the nearest to the head
    margin: Annotated[float, Field(ge=0)] = 0.5  # m: squared distance beyond which a negative is far enough

    # what makes it uncertain
    samples: Annotated[int, Field(ge=2)] = 100  # S, of an image's embedding
    members: Annotated[int, Field(ge=2)] = 5  # of deep_ensemble
    dropout: Annotated[float, Field(gt=0, lt=1)] = 0.2  # of mc_dropout
    beta: Annotated[float, Field(ge=0)] = 1e-4  # of hib: weight of the divergence, of which a pair has two
    match_samples: Count = 8  # of hib, in training
    hidden: Count = 128  # of pfe: width of the hidden layer of the variances' network
    spread_steps: Count = 300  # of pfe: steps of that network
    curvature_images: Count = 5000  # of lam_post_hoc: images of the pass for the Hessian
    hessian: Literal["fixed", "positive", "full"] = "fixed"  # of lam_*, see the head
    distance: Literal["arccos", "euclidean"] = "arccos"  # of lam_*
    memory: Annotated[float, Field(gt=0, le=1)] = 0.01  # of lam_online: α
    prior_precision: Annotated[float, Field(gt=0)] | None = 1000.0  # of lam_*: δ; null: as the head has it
    observations: Annotated[float, Field(gt=0)] | None = None  # of lam_*: N; null: training images


NETWORK = (
    *("data_seed", "held_out", "channels", "dimension"),
    *("steps", "batch", "lr", "negatives", "mining", "margin"),
)
OWN = {
    "points": (),
    "dropout": ("dropout",),
    "hib": ("beta", "match_samples"),
    "pfe": ("hidden", "spread_steps"),
    "online": ("hessian", "distance", "memory", "prior_precision", "observations"),
}
"""What a network is trained as; and which settings decide it, beside those of :data:`NETWORK`."""


def deciding(settings: Settings, kind: str) -> dict[str, Any]:
    """The settings that decide a network of a kind, but for its seed."""
    values = to_plain(settings)
    return {"kind": kind, **{name: values[name] for name in (*NETWORK, *OWN[kind])}}
