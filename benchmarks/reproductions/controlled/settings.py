"""The settings of a run of the controlled experiment (thesis App. B, Tables 6 and 7)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from benchmarks.reproductions.controlled.process import Family, Positives
from pipeline.config import config

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]


@config
class Settings:
    """The process, the encoder and how it learns."""

    later: ClassVar[frozenset[str]] = frozenset({"crossed"})

    seed: int  # of the process, of the encoder and of the training

    # the process
    dimension: Annotated[int, Field(ge=2)] = 10  # D, of latents and inputs
    least: Positive | None = 16.0  # of κ(x); null: infinite, latents are points
    largest: Positive | None = 32.0  # of κ(x)
    family: Family = "vmf"  # of the posteriors
    positives: Positives = "eq_53"  # the law of positive pairs; see process.py
    kappa_pos: Positive = 20.0  # of the process and, unless inverse_temperature says otherwise, of the losses
    spread_steps: Annotated[int, Field(ge=0)] = 5000  # of the training that spreads μ(x)

    # the encoder
    encoder_dimension: Annotated[int, Field(ge=2)] = 10  # D′
    hidden: Count = 128  # width of its layers
    layers: Count = 3  # hidden ones of each network
    shared: bool = False  # κ̂ is a network on the output of μ̂'s, instead of one of its own (Table 8)

    # the loss
    method: Literal["mc_info_nce", "elk", "hib", "info_nce"] = "mc_info_nce"
    inverse_temperature: Positive | None = None  # null: κ_pos
    samples: Count = 16  # K, of each posterior
    negatives: Count = 128  # M, drawn for the whole batch
    # of mc_info_nce: the positive beside the sum of the negatives (Eq. 7), or beside their mean (the authors' code)
    share: Literal["of_sum", "of_mean"] = "of_mean"
    # of mc_info_nce: every sample of a posterior beside every sample of its positive, K² of them, not only beside the
    # one of the same number; the expectation is the same, and its estimate steadier
    crossed: bool = False
    slope: Positive = 1.0  # a, of hib
    offset: float = 0.0  # b, of hib

    # the training
    batch: Count = 256  # pairs
    start_temperature: Positive | None = None  # of InfoNCE, by which the directions are learnt first; null: not done
    start_steps: Annotated[int, Field(ge=0)] = 0  # of that phase, after which the directions stay (phasewise training)
    steps: Count = 1000  # with the method's own loss
    start_lr: Positive = 1e-3  # Adam's; falls to 0 by half a cosine in each phase
    lr: Positive = 1e-3
    evaluated: Annotated[int, Field(ge=2)] = 10_000  # inputs
