"""DeepSpeed: what the optimiser keeps of a head is spread over the processes (ZeRO), see :mod:`._zero`.

Worth it for heads that are large beside a GPU's memory, such as a weight vector for each of 21,843 classes; a head of
the paper's size is trained as well by ``ddp``. Batches, parts, rates and draws are those of ``ddp``; the weights differ
from its by rounding, since gradients are added in another order. Heads are trained one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

import torch
from torch import Tensor
from torch import distributed as dist

from pipeline.errors import LeftError, UserError
from pipeline.heads.base import RepresentationBatch
from pipeline.interruption import stop_asked
from pipeline.training.average import Average
from pipeline.training.config import TrainingConfig
from pipeline.training.engines._zero import Zero, import_deepspeed
from pipeline.training.engines.base import Engine
from pipeline.training.members import Member
from pipeline.training.updates import MOMENTS, optimised_names
from pipeline.world import World


class DeepSpeed(Engine):
    """Each process computes its parts of a batch and keeps its share of what ``zero_stage`` spreads."""

    def __init__(self, members: Sequence[Member], config: TrainingConfig, world: World) -> None:
        """As :class:`Engine` says.

        Raises:
            UserError: besides: the package is not there, there is no process group, or another device is meant.
        """
        super().__init__(members, config, world)
        if not dist.is_initialized():
            raise UserError(
                "train_head.engine=deepspeed: there is no process group of torch.distributed, which DeepSpeed needs "
                "for one process too. `submit` makes one; elsewhere call torch.distributed.init_process_group first."
            )
        if members[0].shares:
            raise UserError(
                "train_head.engine=deepspeed: this head has state that follows the batches, which this engine does not "
                "carry. Set train_head.engine=auto."
            )
        self.deepspeed = import_deepspeed()
        there, wanted = self.deepspeed.accelerator.get_accelerator().device_name(), members[0].device.type
        if there != wanted:
            raise UserError(
                f"train_head.engine=deepspeed: DeepSpeed computes on '{there}' here, and train_head.device is "
                f"'{wanted}'. Set train_head.device={there}, or train_head.engine=ddp."
            )
        self.turns = max(Counter(self.cut.owners).values())
        self.heads: list[Zero] = []  # from the first step on
        self._moments: list[list[dict[str, Tensor]]] = []  # to begin with, of each parameter of each member
        self._averages: dict[str, Tensor] = {}

    def run(
        self, batches: Iterator[RepresentationBatch], *, step: int, rates: Sequence[float], look: bool = True
    ) -> bool:
        """As :class:`Engine` says. Flags are looked at before the step, on the CPU: no GPU waits for them."""
        parts: list[tuple[int, RepresentationBatch, float]] = []
        if not self._error:
            try:
                own = self.cut.mine(self.world.rank)
                shares = [self.cut.weights[part] for part in own]
                parts = list(zip(own, self._parts(next(batches)), shares, strict=True))
            except Exception as error:
                self.fail(error)
        raised = torch.tensor([float(stop_asked()), float(self._error is not None)])
        self.world.add_up(raised)
        if raised[1] > 0:
            self.world.agree(self._error)
        with self._in_step():
            if not self.heads:
                self._start()
            losses_MPK = [head.step(parts, step=step, rate=rate) for head, rate in zip(self.heads, rates, strict=True)]
            self.losses.names = self.heads[0].names
            self.losses.own.append(torch.stack(losses_MPK, dim=1))
            self.average.follow()
            if look:  # the loop looks at weights
                self._put_back()
        return bool(raised[0] > 0)

    def state(self) -> dict[str, Tensor]:
        """As :class:`Engine` says; processes other than the first have the heads alone."""
        with self._in_step():
            self._put_back()
            found = self._head_state()
            names = iter(optimised_names(self.members, "optimizer"))
            for head in self.heads:
                for moments in head.moments():
                    name = next(names)
                    if self.world.first:
                        found |= {f"{name}.{key}": value for key, value in moments.items()}
        averages = self.average.state(optimised_names(self.members, "average"))
        shapes = [parameter.shape for member in self.members for parameter in member.parameters]
        found |= {name: value.reshape(shape) for (name, value), shape in zip(averages.items(), shapes, strict=False)}
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """As :class:`Engine` says."""
        self._restore_heads(tensors)
        self._averages = dict(tensors)
        names = iter(optimised_names(self.members, "optimizer"))
        self._moments = [
            [{key: tensors[f"{name}.{key}"] for key in MOMENTS} for name in islice(names, len(member.parameters))]
            for member in self.members
        ]

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """As :class:`Engine` says."""
        with self._in_step(), self.average.in_place():
            self._put_back()
        yield

    def finish(self) -> None:
        """As :class:`Engine` says."""
        with self._in_step():
            if not self.heads:  # no step was left
                self._start()
            self.average.finish()
            self._put_back()
            for head in self.heads:
                head.end()

    def _start(self) -> None:
        """Hand the heads to DeepSpeed, with the weights and moments to begin with."""
        settings = {"stage": self.config.zero_stage, "turns": self.turns, "processes": self.world.size}
        self.heads = [Zero(member, deepspeed=self.deepspeed, **settings) for member in self.members]
        for head, moments in zip(self.heads, self._moments, strict=False):
            head.restore(moments)
        trained = [parameter for head in self.heads for parameter in head.copy.parameters]
        self.average = Average(trained, self.config.ema)
        if self._averages:
            self.average.restore(self._averages, optimised_names(self.members, "average"))
        self._moments, self._averages = [], {}

    def _put_back(self) -> None:
        for head in self.heads:
            head.put_back()

    @contextmanager
    def _in_step(self) -> Iterator[None]:
        """What fails inside cannot be told to the others, who are in the middle of it too."""
        try:
            yield
        except Exception as error:
            if self.world.size == 1:
                raise
            with self.world.talking():
                if isinstance(error, dist.DistError) or "gloo" in str(error):
                    raise
            who = f"process {self.world.rank} of {self.world.size}"
            raise LeftError(f"{who} failed within a step: {type(error).__name__}: {error}") from error
