"""What a head is: it reads a frozen representation and says an embedding and how unsure it is of it.

Shape suffixes: B rows of a batch, V views of a row, D width of the representation, E width of the embedding,
C classes, S samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from pipeline.tuning.space import Space

Sampling = Literal["uniform", "class_balanced", "triplets"]
Mining = Literal["random", "representation", "head"]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a head wants in its batches; the reader serves it."""

    training: bool = True  # False: nothing to train, the head is ready after prepare(), and finalise() where it has one
    labels: bool = False
    task_loss: bool = False
    classifier: bool = False  # prepare() reads the summary's frozen classifier, so it is saved with the head
    progress: bool = False  # how far training is, for heads with a schedule of their own
    views: int = 1  # views of the same row in one batch; drawn afresh for every row and epoch
    # uniform: each row once an epoch; class_balanced: groups of rows_per_class neighbouring rows of one class, all
    # classes equally often; triplets: groups of an anchor, a positive of its class, and rows of other classes, each row
    # an anchor once an epoch (a batch holds labels only if `labels` says so)
    sampling: Sampling = "uniform"
    rows_per_class: int = 2  # of a group of class_balanced
    negatives: int = 1  # rows of other classes in a group of triplets
    # negatives of triplets: drawn, or of so many random rows of the window (5,000 in Warburg et al., ICCV 2021, Sec. 4)
    # the nearest to the anchor in the representation, or in the embedding of the head as it is at each step
    mining: Mining = "random"
    pool: int = 5000
    # The loss is a mean over groups of so many neighbouring rows of a batch (1 = rows, 2 = pairs), or it compares all
    # rows with each other (None). A batch is cut between groups only, to be run in parts or by several processes, and
    # never within a group of the sampling.
    together: int | None = None

    def __post_init__(self) -> None:
        if min(self.rows_per_class, self.negatives, self.pool) < 1:
            raise ValueError("rows_per_class, negatives and pool are at least 1")
        if self.sampling == "triplets" and self.together is not None and self.together % self.group:
            raise ValueError(f"together={self.together} tears groups of {self.group} rows (triplets) apart")

    @property
    def group(self) -> int:
        """Rows that the sampling puts beside each other."""
        return {"uniform": 1, "class_balanced": self.rows_per_class, "triplets": 2 + self.negatives}[self.sampling]


@dataclass(frozen=True, kw_only=True)
class LinearClassifier:
    """The frozen classifier over the representation: the backbone's own, or the probe on all rows."""

    weight_CD: Tensor
    bias_C: Tensor


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What is known of a store before training starts."""

    width: int  # D
    rows: int
    num_classes: int
    class_names: tuple[str, ...] = ()
    mean_D: Tensor | None = None
    scale: float = 1.0  # root mean square of the centred representation
    classifier: LinearClassifier | None = None


@dataclass(frozen=True, kw_only=True)
class RepresentationBatch:
    """Rows of a store, on the device, in the order the sampler gave; with ``needs.group`` neighbours of a group.

    Attributes:
        representation_BVD: float, V = ``needs.views`` views of each row.
        row_B: int64, place of the row in the store (units in order, rows in order): a head may have parameters a row.
        task_loss_BV: float32 in nats, the frozen classifier's cross-entropy at the label; None unless needed.
        label_B: int64, −1 = unlabelled; None unless needed.
        progress_B: float32, the share of training's steps that lies before this one, in [0, 1), the same for all rows;
            1 in the pass at the end; None unless needed.
    """

    representation_BVD: Tensor
    row_B: Tensor
    task_loss_BV: Tensor | None = None
    label_B: Tensor | None = None
    progress_B: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class LossOutput:
    """The scalar that is minimised, and what one would like to see of it."""

    total: Tensor
    parts: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class HeadOutput:
    """An embedding and one or more uncertainties; **higher means less sure**, always.

    Attributes:
        embedding_BE: the embedding that retrieval uses. StopGrad heads return the representation itself, bit for bit.
        uncertainty: name → float tensor of shape (B,).
        primary: the name of the score that stands for the head.
    """

    embedding_BE: Tensor
    uncertainty: Mapping[str, Tensor]
    primary: str

    def __post_init__(self) -> None:
        if self.primary not in self.uncertainty:
            raise ValueError(f"primary='{self.primary}' is none of the uncertainties: {', '.join(self.uncertainty)}")
        rows = self.embedding_BE.shape[:1]
        for name, value_B in self.uncertainty.items():
            if value_B.shape != rows:
                raise ValueError(
                    f"uncertainty '{name}' has shape {tuple(value_B.shape)}, not one number a row: {tuple(rows)}"
                )

    @property
    def uncertainty_B(self) -> Tensor:  # noqa: N802 (a shape suffix)
        """The primary score, shape (B,)."""
        return self.uncertainty[self.primary]


class Head(nn.Module, ABC):
    """One method. Its learnable parameters (proxies, temperatures …) are its own and are optimised with it.

    The file's name is the method's name: ``head=<name>`` finds ``pipeline/heads/<name>.py``. A subclass defines a
    nested ``Config`` (made with :func:`pipeline.config.config`) and takes ``(config, seed)``; everything whose shape
    depends on the store is made in :meth:`prepare`, which is also called with the stored summary when a checkpoint is
    loaded.
    """

    Config: ClassVar[type[Any]]
    # StopGrad heads: the embedding is the representation, bit for bit. A head with settings for both says so when made.
    keeps_representation: bool = False
    # State that follows the batches, such as the precision of an online posterior: parameters by name, and the share m
    # of each that is kept in a step. The optimiser, decay and averaging leave them alone; p becomes m·p + gradient. So
    # the loss adds :func:`carried` with what it found, which is then added up over parts and processes as gradients
    # are.
    running: Mapping[str, float] = MappingProxyType({})

    def __init__(self, config: Any, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.seed = seed

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """What the batches of this head must hold."""

    @property
    def finalises(self) -> bool:
        """Whether it takes the pass over the store that ``finalise`` is offered."""
        return type(self).finalise is not Head.finalise

    @property
    def fitted(self) -> bool:
        """Whether the store's rows make it what it is; if not, it is ready once it is prepared."""
        return self.needs.training or self.finalises

    @property
    def search(self) -> Space:
        """Which of its settings ``stage=tune`` looks for, over which ranges; the learning rate is looked for anyway."""
        return {}

    @abstractmethod
    def prepare(self, summary: Summary) -> None:
        """Make the parameters. Deterministic given ``seed``: draw from a generator of its own, not the global one."""

    def loss(self, batch: RepresentationBatch) -> LossOutput:
        """The loss of a batch; reduction: mean over rows unless the head's docstring says otherwise.

        With ``needs.together`` the loss, and each of its parts, of a batch is the mean of those of any cut of it into
        whole groups, weighted by their groups. What the loss learns is in parameters: it changes no buffer, because it
        is called for parts of a batch, in several processes.
        """
        raise NotImplementedError(f"{type(self).__name__} has nothing to train")

    def finalise(self, batches: Iterable[RepresentationBatch]) -> None:
        """One exact pass over the rows to train on, for heads that want it (a precision matrix, a Hessian).

        It comes after training, or in its place for a head that needs none. Each row is in it once, one by one whatever
        the sampling is, with what else ``needs`` says. A head that does not iterate costs nothing.
        """

    @abstractmethod
    def forward(self, representation_BD: Tensor) -> HeadOutput:
        """Embedding and uncertainty of each row. Deterministic given the seed."""

    def sample(self, representation_BD: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
        """Samples of the embedding's posterior, shape (S, B, E).

        Raises:
            NotImplementedError: the head has no posterior.
        """
        raise NotImplementedError(f"{type(self).__name__} has no posterior to sample from")


def carried(parameter: Tensor, found: Tensor) -> Tensor:
    """0, with ``found`` as the gradient of ``parameter``; see :attr:`Head.running`."""
    return (found.detach() * (parameter - parameter.detach())).sum()
