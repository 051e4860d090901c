"""One head under DeepSpeed: a copy of it, whose optimiser, gradients and weights are spread over the processes.

What DeepSpeed is used for is ZeRO (Rajbhandari et al. 2020, *ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models*): at stage 1 each process has a share of the optimiser's moments, at 2 of the gradients too, at 3 of
the weights too; at 0 nothing is spread. The rate, the order of rows and bfloat16 are ours. Written for DeepSpeed 0.19,
the one place that knows its insides: :meth:`Zero._lay_out` and :meth:`Zero._own_share`.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from pipeline.errors import UserError
from pipeline.heads.base import RepresentationBatch
from pipeline.training.members import Member, draw_seed, seed_generators
from pipeline.training.updates import make_optimizer

MEANS = ("exp_avg", "exp_avg_sq")  # what AdamW keeps of a parameter, beside the count of steps


def import_deepspeed() -> ModuleType:
    """The package, imported here alone: it takes seconds.

    Raises:
        UserError: it is not there, or cannot be imported.
    """
    try:
        with _quiet():
            import deepspeed
            from deepspeed import ops
            from deepspeed.utils import logger
    except Exception as error:  # it looks at the machine while it is imported
        raise UserError(
            f"train_head.engine=deepspeed: the package deepspeed cannot be imported ({type(error).__name__}: {error}). "
            "Install it with `DS_BUILD_OPS=0 pip install 'hedgerow[deepspeed]'`, or set train_head.engine=ddp."
        ) from error
    logger.setLevel(logging.ERROR)  # it writes to standard output
    # On a CPU it would compile an all-reduce of its own, which takes a minute or two and a compiler.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")  # it uses older names
    return deepspeed


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what is said of a machine that has no GPU."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


class _Loss(nn.Module):
    """A head's loss as a module's forward, which is what DeepSpeed watches."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.head, self.member = member.head, member

    def forward(self, rows: RepresentationBatch) -> tuple[Tensor, dict[str, Tensor]]:
        output = self.member.loss(rows)
        return output.total, {name: value.detach() for name, value in output.parts.items()}


class _Scalar(nn.Module):
    """A number that is kept as a vector of one."""

    def forward(self, kept: Tensor) -> Tensor:
        return kept.reshape(())

    def right_inverse(self, number: Tensor) -> Tensor:
        return number.reshape(1)


def _copy_of(member: Member) -> Member:
    """A copy with its parameters in the same order. Scalars are vectors of one, since DeepSpeed can send no scalar."""
    head, copies = deepcopy(member.head), {}
    for name, parameter in member.head.named_parameters():
        place, _, attribute = name.rpartition(".")
        owner = head.get_submodule(place)
        copies[id(parameter)] = getattr(owner, attribute)
        if parameter.ndim == 0:
            register_parametrization(owner, attribute, _Scalar())
            copies[id(parameter)] = owner.parametrizations[attribute].original  # type: ignore[index, union-attr]
    copy = Member(head, member.config, member.device)
    copy.parameters = [copies[id(parameter)] for parameter in member.parameters]
    return copy


class Zero:
    """A member in training under DeepSpeed. Its own head stands by, and takes the weights when they are asked for.

    Everything is called by all processes, in the same order.
    """

    def __init__(self, member: Member, *, stage: int, turns: int, processes: int, deepspeed: ModuleType) -> None:
        """Copy the head and hand the copy to DeepSpeed.

        Args:
            member: with the weights to begin with, the same in every process.
            stage: of ZeRO.
            turns: how many parts of a batch each process computes in a step.
            processes: that share the batches.
            deepspeed: the package.
        """
        self.member, self.stage, self.turns, self.deepspeed = member, stage, turns, deepspeed
        self.scale = processes * turns  # DeepSpeed divides by both; our weights are shares of the whole batch
        self.names: list[str] = []  # of the loss and its parts
        self.steps = 0
        self.copy = _copy_of(member)
        loss = _Loss(self.copy)
        settings = {
            "train_micro_batch_size_per_gpu": 1,  # a part; how many rows it has is ours to know
            "gradient_accumulation_steps": turns,
            "gradient_clipping": member.config.clip_norm or 0.0,
            # Its other linear layer, for stage 3, would stay in place of torch's in this whole process.
            "zero_optimization": {"stage": stage, "memory_efficient_linear": False},
            "zero_allow_untested_optimizer": True,  # AdamW of torch: nothing is compiled
            "steps_per_print": None,
        }
        self.engine, self.optimizer, *_ = deepspeed.initialize(
            model=loss, optimizer=make_optimizer([self.copy], capturable=False), config=settings
        )
        if stage == 3:  # a loss may use a weight outside the module that has it: all are there while it is computed
            for parameter in loss.parameters():
                deepspeed.zero.register_external_parameter(loss, parameter)
        self._lay_out()

    def _lay_out(self) -> None:
        """Make the moments, which DeepSpeed would make in the first step (and then know only of the first group's)."""
        inner: Any = getattr(self.optimizer, "optimizer", self.optimizer)
        held = [parameter for group in inner.param_groups for parameter in group["params"]]
        if self.stage == 3:
            held = self.optimizer.fp32_partitioned_groups_flat
        for parameter in held:
            zeros = {name: torch.zeros_like(parameter) for name in MEANS}
            inner.state[parameter] = {"step": torch.zeros((), device=parameter.device), **zeros}
        if self.stage in (1, 2):
            self.optimizer._lazy_init_hp_params_optimizer_state()
        self.inner = inner

    def step(
        self,
        parts: Sequence[tuple[int, RepresentationBatch, float]],
        *,
        step: int,
        rate: float,
    ) -> Tensor:
        """One update; the losses of the own parts (own parts, K), NaN where gradients were not finite.

        Args:
            parts: the own ones: number, rows and share of the batch. One is computed again with a share of 0 where
                another process has more: all must take as many turns.
            step: of the run.
            rate: of learning.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        found = []
        for turn in range(self.turns):
            part, rows, share = parts[min(turn, len(parts) - 1)]
            seed_generators(draw_seed(self.member.head.seed, step, part), self.member.device)
            total, others = self.engine(rows)
            self.engine.backward(total * (share * self.scale * (turn < len(parts))))
            self.engine.step()
            if turn < len(parts):
                self.names = ["loss", *others]
                found.append(torch.stack([value.detach().float() for value in (total, *others.values())]))
        applied = self.engine.was_step_applied()
        self.steps += applied
        losses_PK = torch.stack(found)
        return losses_PK if applied else torch.full_like(losses_PK, torch.nan)

    @torch.no_grad()
    def put_back(self) -> None:
        """The weights and buffers as they are now, into the member's own head, in every process."""
        gathered = nullcontext()
        if self.stage == 3:
            gathered = self.deepspeed.zero.GatheredParameters(self.copy.parameters, modifier_rank=None)
        with gathered:
            for own, value in zip(self.member.parameters, self.copy.parameters, strict=True):
                own.copy_(value.reshape(own.shape))
        for held, buffer in zip(self.member.head.buffers(), self.copy.head.buffers(), strict=True):
            held.copy_(buffer)

    def moments(self) -> Iterator[dict[str, Tensor]]:
        """For each parameter what AdamW keeps of it, whole, on the CPU; one at a time, since it is put together."""
        from deepspeed.utils import safe_get_full_optimizer_state

        for own, parameter in zip(self.member.parameters, self.copy.parameters, strict=True):
            found = {"step": torch.tensor(float(self.steps))}
            for name in MEANS:
                whole = (
                    safe_get_full_optimizer_state(parameter, name) if self.stage else self.inner.state[parameter][name]
                )
                found[name] = whole.reshape(own.shape).to("cpu", copy=True)
            yield found

    def restore(self, moments: Sequence[Mapping[str, Tensor]]) -> None:
        """Take over what :meth:`moments` gave, in whatever number of processes."""
        self.steps = int(moments[0]["step"])
        for state in self.inner.state.values():
            state["step"].fill_(self.steps)
        for parameter, found in zip(self.copy.parameters, moments, strict=True):
            for name in MEANS:
                self._own_share(parameter, name, found[name])

    def _own_share(self, parameter: Tensor, name: str, whole: Tensor) -> None:
        from deepspeed.utils import (
            safe_get_local_optimizer_state,
            safe_set_full_optimizer_state,
            safe_set_local_optimizer_state,
        )

        if self.stage == 0:
            self.inner.state[parameter][name].copy_(whole.reshape(parameter.shape))
        elif self.stage < 3:
            safe_set_full_optimizer_state(parameter, whole, name)
        else:  # the shares are of one size, and the last ones may reach beyond the end
            size = safe_get_local_optimizer_state(parameter, name).numel()
            rank, count = self.engine.global_rank, self.engine.world_size
            padded = torch.cat([whole.flatten(), whole.new_zeros(size * count - whole.numel())])
            safe_set_local_optimizer_state(parameter, padded[size * rank : size * (rank + 1)], name)

    def end(self) -> None:
        """Give up what DeepSpeed holds."""
        self.engine.destroy()
