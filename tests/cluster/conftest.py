"""A house in small: its own stages and configs, found by file name like the real ones, so that `submit` is quick."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cluster.compose
import cluster.help
import stages

TOY = '''
from pathlib import Path
from typing import Annotated, ClassVar
from pydantic import Field
from pipeline.config import config
from pipeline.errors import UserError
from pipeline.files import write_bytes
from stages.base import SetAside, Stage, Status, Unit

@config
class ToyConfig:
    """One file a unit.

    Attributes:
        units: how many there are.
    """
    operational: ClassVar[frozenset[str]] = frozenset({"failing", "broken", "interrupt", "terminate", "output"})
    units: Annotated[int, Field(ge=1, le=9)] = 3
    seed: int = 0  # of nothing
    failing: tuple[str, ...] = ()  # units that fail
    broken: tuple[str, ...] = ()  # units with a bug
    interrupt: str | None = None
    """The unit at which
    somebody presses Ctrl-C."""
    terminate: str | None = None  # the unit at which somebody gives the command kill
    output: Path | None = None  # run folder

class Toy(Stage):
    reads = ()
    def inputs(self):
        return self.reads
    def plan(self):
        return [Unit(id=str(i), what=f"toy/{i}", samples=10, bytes=1500)
                for i in range(self.config.units) if not (self.folder / f"{i}.done").exists()]
    def run(self, unit, progress):
        import signal
        if unit.id in self.config.failing:
            write_bytes(self.folder / f"{unit.id}.failed", b"")
            raise UserError(f"toy/{unit.id}: the tar is torn at byte 7. Pack it again.")
        if unit.id in self.config.broken:
            raise RuntimeError("a bug")
        if unit.id == self.config.interrupt:
            signal.raise_signal(signal.SIGINT)
        if unit.id == self.config.terminate:
            signal.raise_signal(signal.SIGTERM)
        write_bytes(self.folder / f"{unit.id}.done", b"")
    def status(self):
        ids = frozenset(path.stem for path in self.folder.glob("*.done"))
        failed = {path.stem: "torn" for path in sorted(self.folder.glob("*.failed")) if path.stem not in ids}
        total = self.config.units if self.folder.exists() else None
        return Status(done=len(ids), total=total, samples=10 * len(ids), failed=failed, done_ids=ids)
    def forget_failure(self, unit):
        record = self.folder / f"{unit}.failed"
        return record.exists() and record.unlink() is None
    def set_aside(self):
        for path in sorted(self.folder.glob("*.done")):
            for i in range(int(path.stem)):
                yield SetAside(unit=path.stem, tar=f"toy/{path.stem}", key=f"k{i}", reason=f"cls says {i}, not 'x{i}'")
    def verify(self, progress):
        return [f"unit {p.stem}: not empty" for p in sorted(self.folder.glob("*.done")) if p.stat().st_size]
'''

STAGE = '''
from stages._toy import Toy, ToyConfig
from pipeline.config import config

class {cls}(Toy):
    name = "{name}"
    groups = {groups}
    reads = {reads}
    @config
    class Config(ToyConfig):
        """Nothing of its own."""
        {extra}
'''

STAGES = {
    "gather": {"groups": ("dataset",), "reads": (), "extra": "gathers: int = 1"},
    "probe": {"groups": (), "reads": ("gather",), "extra": ""},
    "train": {"groups": ("head",), "reads": ("gather",), "extra": "seeds: tuple[int, ...] = (0,)"},
    "evaluate": {"groups": ("head", "compare", "downstream"), "reads": ("train", "gather"), "extra": ""},
    "release": {"groups": ("head",), "reads": ("evaluate", "train"), "extra": ""},
}

EXPERIMENT = """# @package _global_
defaults:
  - override /dataset: pairs
  - override /backbone: toy
name: {name}
evaluate:
  datasets: [pairs_unseen]
  compare: [inverse_norm, loss_prediction_l2]
"""


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The configs folder of the small house; the working folder is an empty one."""
    found = {name for name in sys.modules if name.startswith("stages.") and name != "stages.base"}
    real = {name: sys.modules.pop(name) for name in found}
    folder = tmp_path / "stages"
    folder.mkdir()
    (folder / "_toy.py").write_text(TOY)
    for name, parts in STAGES.items():
        (folder / f"{name}.py").write_text(STAGE.format(cls=name.title(), name=name, **parts))
    monkeypatch.setattr(stages, "__path__", [str(folder)])

    configs = tmp_path / "configs"
    for part in ("head", "cluster", "recipe"):
        shutil.copytree(cluster.compose.CONFIGS / part, configs / part)
    shutil.copy(cluster.compose.CONFIGS / "config.yaml", configs)
    files = {
        "dataset/pairs": "kind: digit_pairs\nroot: ${data_root}/pairs\n",
        "dataset/pairs_unseen": "kind: digit_pairs\nsplit: unseen\nroot: ${data_root}/pairs\n",
        "backbone/toy": "model: vit_tiny_patch16_224\nweights: random\n",
        **{f"stage/{name}": f"# submit stage={name} — toys\nunits: 3\n" for name in STAGES},
        **{f"experiment/{name}": EXPERIMENT.format(name=name) for name in ("demo", "other")},
    }
    for name, text in files.items():
        (configs / f"{name}.yaml").parent.mkdir(exist_ok=True)
        (configs / f"{name}.yaml").write_text(text)
    monkeypatch.setattr(cluster.compose, "CONFIGS", configs)
    monkeypatch.setattr(cluster.help, "CONFIGS", configs)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield configs
    for name in [name for name in sys.modules if name.startswith("stages.") and name != "stages.base"]:
        del sys.modules[name]
        vars(stages).pop(name.removeprefix("stages."), None)
    sys.modules.update(real)
    for name, module in real.items():  # an imported module is an attribute of its package too
        setattr(stages, name.removeprefix("stages."), module)
