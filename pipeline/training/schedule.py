"""The learning rate as a function of the samples seen."""

from __future__ import annotations

import math

from pipeline.training.config import TrainingConfig


def learning_rate(config: TrainingConfig, step: int) -> float:
    """Rate of a step: linear from ``start_lr`` to the peak, then a cosine down to ``end_lr``.

    *Pretrained visual uncertainties*, App. A: 1e-4 to 0.0028 in 25 of 460 episodes, then down to 1e-8. There the rate
    changes once an episode; here with every step. The last step gets ``end_lr`` exactly.
    """
    total = config.total_steps
    warmup = total * config.warmup_episodes / config.episodes
    if step < warmup:
        return config.start_lr + (config.peak_lr - config.start_lr) * step / warmup
    done = (step - warmup) / max(total - 1 - warmup, 1)
    return config.end_lr + (config.peak_lr - config.end_lr) * (1 + math.cos(math.pi * min(done, 1))) / 2
