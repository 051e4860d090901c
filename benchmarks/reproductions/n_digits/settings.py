"""The settings of a run of N-digit MNIST (HIB, Sec. 4.1 and App. A)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pipeline.config import config

Count = Annotated[int, Field(ge=1)]


@config
class Settings:
    """The images, the embedding and how it learns."""

    seed: int  # of the embedding and the training

    # the images
    digits: Annotated[int, Field(ge=1, le=4)] = 2  # N
    data_seed: int = 0  # of the split of the digits and the classes, and of the images
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2  # of the 10,000 digits, of each value
    seen_share: Annotated[float, Field(gt=0, le=1)] = 0.7  # of the classes are trained on
    test_on: Literal["test", "validation"] = "test"  # validation: a fifth of the training digits, not trained on then
    test_images: Count = 10_000  # of classes that were trained on; clean, and again corrupt
    occlusion: Annotated[float, Field(ge=0, le=1)] = 0.2  # chance of a digit of a training image

    # the embedding
    method: Literal["point", "mog_1", "mog_2"] = "mog_1"
    dimension: Count = 2  # D
    channels: tuple[Count, Count] = (12, 24)  # of the two convolutions; the paper does not say
    hidden: Count = 128  # width of the layer behind them; the paper has none
    slope: Annotated[float, Field(gt=0)] = 8.0  # a at the start
    initial_scale: Annotated[float, Field(gt=0)] = 0.3  # standard deviations at the start, about
    beta: Annotated[float, Field(ge=0)] = 1e-4  # weight of the divergence in Eq. 8, where a pair has two
    samples: Count = 8  # K, of a component

    # the training
    steps: Count = 6000
    drawn: Annotated[int, Field(ge=10)] = 60  # digits of a step
    batch: Annotated[int, Field(ge=4)] = 192  # images of a step, which share those digits
    group: Annotated[int, Field(ge=2)] = 4  # neighbours in a batch that show the same number
    partners: Annotated[int, Field(ge=2)] = 15  # images of the batch behind each that it is compared with
    match_share: Annotated[float, Field(gt=0, lt=1)] = 0.03  # weight of the pairs that match in the loss
    lr: Annotated[float, Field(gt=0)] = 8e-3  # Adam's; falls to 0 by half a cosine
    warmup: Annotated[int, Field(ge=0)] = 100  # steps in which it rises before
    queries: Count = 2000  # images of a test set that are identified
