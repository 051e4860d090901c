"""How heads are trained. The defaults are the paper's (*Pretrained visual uncertainties*, App. A)."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.config import config

Positive = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=1 << 31)]
Rate = Annotated[float, Field(gt=0)]
Decay = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]


@config
class Sweep:
    """Values that are all trained in one pass, each with each and with every seed; none: the one value outside."""

    base_lr: tuple[Rate, ...] = ()  # instead of base_lr
    weight_decay: tuple[Decay, ...] = ()  # instead of weight_decay

    def __post_init__(self) -> None:
        for key, values in vars(self).items():
            if len(set(values)) != len(values):
                raise ValueError(f"values of {key} must differ: {list(values)}")


@config
class TrainingConfig:
    """Everything that decides the weights, then how and where the work is done."""

    operational: ClassVar[frozenset[str]] = frozenset(
        {
            *("engine", "zero_stage", "device", "batched", "cuda_graph", "threads"),
            *("memory_gb", "log_every", "validate_every", "checkpoint_seconds", "tensorboard"),
        }
    )

    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = (0,)  # one head each, side by side on the same batches
    data_seed: Seed = 0  # of the order of rows, shared by all seeds
    batch_size: Positive = 2048  # rows a step
    accumulate: Positive = 1  # parts in which a batch is run; a loss that compares rows sees those of one part
    episodes: Positive = 460  # length of training, in episodes of …
    episode_samples: Positive = 200_000  # … so many rows
    warmup_episodes: Annotated[float, Field(ge=0)] = 25  # the rate rises over these
    samples: Positive | None = None  # length of training in rows instead; warm-up keeps its share of the whole
    steps: Positive | None = None  # length of training in steps instead of either
    length: Annotated[float, Field(gt=0)] = 1.0  # times that length
    base_lr: Rate = 1e-3  # peak learning rate at a batch of 256; times √(batch_size / 256): 2.83e-3 at 2,048
    start_lr: Rate = 1e-4  # where the rise begins
    end_lr: Rate = 1e-8  # where the cosine ends
    betas: tuple[Share, Share] = (0.8, 0.95)  # of AdamW
    weight_decay: Decay = 1e-4  # of AdamW; none on biases and scalars
    sweep: Sweep = Sweep()  # values that are all trained in one pass, a folder each
    clip_norm: Rate | None = None  # longest gradient of a head: a longer one is shortened to it; null: never
    ema: Annotated[float, Field(ge=0, lt=1)] = (
        0.0  # share a running mean of weights keeps in a step; it is saved; 0: none
    )
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # of the loss's matrix products; auto: bf16 on CUDA, else fp32
    window: Positive = 1 << 17  # rows that are mixed with each other; larger than the store = full permutation
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.0  # of rows, held out by a hash of the key
    validation_rows: Positive = 8192  # at most so many held-out rows are looked at, always the same

    engine: Literal["auto", "single", "ddp", "deepspeed"] = "auto"  # auto: single in one process, ddp in several
    # What deepspeed spreads over processes: 0 nothing, 1 the optimiser, 2 gradients too, 3 weights too.
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 1
    device: str = "auto"  # auto, cpu, cuda, cuda:1 …; auto: a GPU if there is one
    batched: Literal["auto", "on", "off"] = "auto"  # heads in one batch of computation; auto: on CUDA
    cuda_graph: Literal["auto", "off"] = "off"  # one CUDA graph a step; auto: in one process on CUDA, if it can be
    threads: Positive = 2  # that read the store
    memory_gb: Rate = 2.0  # a store that fits is held in memory, a larger one is streamed
    log_every: Positive = 50  # steps
    validate_every: Positive | None = None  # steps; null: at the end alone
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 60.0  # between checkpoints, at the next log line

    tensorboard: bool = False  # event files for TensorBoard beside log.csv, the same numbers over the samples seen

    def __post_init__(self) -> None:
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must differ: {list(self.seeds)}")
        if self.validate_every and not self.validation_share:
            raise ValueError("validate_every needs rows that are held out: set validation_share, e.g. to 0.05")
        if self.engine == "deepspeed" and self.batched == "on":
            raise ValueError("engine=deepspeed trains heads one after the other: leave batched at auto, or engine=ddp")
        if self.engine == "deepspeed" and self.zero_stage == 3 and self.ema:
            raise ValueError("ema needs the weights that zero_stage=3 spreads: set zero_stage to 0, 1 or 2, or ema=0")
        if self.warmup_episodes >= self.episodes:
            raise ValueError(f"warmup_episodes ({self.warmup_episodes:g}) must be less than episodes ({self.episodes})")

    @property
    def total_steps(self) -> int:
        """Steps of the whole run: 44,922 for the paper's."""
        rows = self.samples or self.episodes * self.episode_samples
        return math.ceil(self.length * self.steps if self.steps else self.length * rows / self.batch_size)

    @property
    def peak_lr(self) -> float:
        """The learning rate after warm-up."""
        return self.base_lr * math.sqrt(self.batch_size / 256)
