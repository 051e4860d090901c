"""How representations are made from images."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from pipeline.caching.budget import Share
from pipeline.config import config
from pipeline.errors import UserError
from pipeline.images.views import AugmentationConfig, expand
from pipeline.representation_store.compression import Compressor
from pipeline.representation_store.encoding import Dtype


@config
class CacheSettings:
    """How representations are made from images."""

    operational: ClassVar[frozenset[str]] = frozenset({"workers", "decode", "max_quarantined"})

    # Named views, one representation of each image per view: center, blur_3, crop_40, …; crops and interventions stand
    # for all of theirs.
    views: tuple[str, ...] = ("center",)
    random_views: Annotated[int, Field(ge=0, le=1000)] = 0  # random augmentations beside them (7 in the paper)
    seed: int = 0  # of the random views
    augmentation: AugmentationConfig = AugmentationConfig()
    unlabelled: Literal["refused", "unlabelled"] = "refused"  # a sample without a label is quarantined, or gets −1
    classifier: Literal["auto", "required", "off"] = "auto"  # scores of the backbone's own class head
    # Views a batch; decides low bits, so it stands in the run record. auto: 32 on a CPU; on a GPU it is found once.
    batch_size: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    dtype: Dtype = "float16"  # of the stored embedding; int8 has a scale of its own for each row and view
    compressor: Compressor = "none"  # of everything stored; a checksum stands behind it in any case
    compression_level: Annotated[int, Field(ge=1, le=9)] = 3  # of the compressor: 1 = quick, 9 = small
    # Share of the run's samples that may be unusable (0.01 or 1%) before a unit fails: see docs/inputs.md.
    max_quarantined: Share = 0.01
    workers: Annotated[int, Field(ge=0)] = 0  # that decode; 0 = one a core
    # What the workers are; auto: processes where the backbone is on a GPU, else threads.
    decode: Literal["auto", "threads", "processes"] = "auto"

    def __post_init__(self) -> None:
        try:
            expand(self.views)
        except UserError as error:
            raise ValueError(f"views: {error}") from None

    @property
    def view_names(self) -> tuple[str, ...]:
        """All views, in the order of the store's V axis."""
        return (*expand(self.views), *(f"random{i}" for i in range(self.random_views)))
