"""What the documents say holds: links lead somewhere, commands compose, examples run."""

import re
import shlex
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch
from PIL import Image

from cluster.compose import compose
from cluster.overrides import read
from pipeline.heads.base import Summary
from pipeline.report.look import Look
from pipeline.report.parts import Context
from pipeline.training.checkpoints import read_checkpoint, save_head
from stages.base import stage_names
from tests.made_up import evaluation

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a language ("" = none)."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [text for of, text in found if of == language]


def example(folder: Path, document: str) -> ModuleType:
    """The first Python block of a document, imported as a file of its own."""
    path = folder / f"{Path(document).stem}.py"
    path.write_text(blocks(ROOT / "docs" / document, "python")[0])
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(document):
    for target in re.findall(r"(?<!!)\[[^\]]+\]\(([^)]+)\)", document.read_text()):
        place, _, anchor = target.partition("#")
        if place.startswith("https://"):
            continue
        linked = (document.parent / place).resolve() if place else document
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", text.lower()).replace(" ", "-") for text in headings], target


def commands() -> list[str]:
    found = []
    for document in DOCUMENTS:
        for block in blocks(document, ""):
            lines = block.replace("\\\n", " ").splitlines()
            found += [line for line in lines if line.startswith("submit ") and "…" not in line]
    return found


@pytest.mark.parametrize("command", commands())
def test_commands_compose(command):
    line = read(shlex.split(command)[1:])
    composed = compose(line.overrides)
    assert set(composed.experiment.stages) == set(stage_names())


def test_make_knows_what_is_asked_of_it():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        asked = set(re.findall(r"(?:`|^)make ([a-z]+)", document.read_text(), re.MULTILINE))
        assert asked <= targets


def test_the_head_of_the_example_works(tmp_path):
    head = example(tmp_path, "adding_a_head.md").DistanceToMean
    made = head(head.Config(), seed=0)
    mean_D = torch.tensor([1.0, 0.0, 2.0])
    summary = Summary(width=3, rows=1, num_classes=1, mean_D=mean_D, scale=2.0)
    made.prepare(summary)
    representation_BD = torch.stack([mean_D, mean_D + torch.tensor([0.0, 3.0, 4.0])])
    output = made(representation_BD)
    assert output.uncertainty_B.tolist() == [0.0, 2.5]
    assert torch.equal(output.embedding_BE, representation_BD)
    assert not made.needs.training
    save_head(tmp_path / "saved", made, summary, store="", training={}, metrics={})
    tensors = read_checkpoint(tmp_path / "saved").tensors
    assert tensors["head.mean_D"].tolist() == tensors["summary.mean_D"].tolist() == mean_D.tolist()
    text = sys.modules[head.__module__].__doc__
    for part in ("score", "Cost:", "Shape suffixes"):
        assert part in text, "as it is wanted of every head"


def test_the_dataset_of_the_example_works(tmp_path):
    root = tmp_path / "flowers"
    (root / "images").mkdir(parents=True)
    for name in ("a", "b", "c"):
        Image.new("RGB", (4, 4)).save(root / "images" / f"{name}.jpg")
    (root / "labels.csv").write_text("file,class\nb.jpg,rose\na.jpg,tulip\nc.jpg,rose\n")
    flowers = example(tmp_path, "adding_a_dataset.md").Flowers
    dataset = flowers(flowers.Config(root=root))
    dataset.check()
    images = list(dataset.images())
    assert len(dataset) == 3
    assert {image.key: image.class_name for image in images} == {"a": "tulip", "b": "rose", "c": "rose"}
    assert dataset.class_names() == ["rose", "tulip"]
    assert [image.key for image in dataset.images()] == [image.key for image in images]


def test_the_analysis_of_the_example_works(tmp_path):
    analysis = example(tmp_path, "adding_an_analysis.md").DistinctValues("distinct_values")
    records, (one,) = evaluation(tmp_path, {"unseen": "downstream"}, [analysis], rows=30)
    values = records.read(records.of("unseen"))["distinct_values"]["values"]
    assert values["random"]["distinct"]["values"] == [1.0, 1.0, 1.0]
    (table,) = analysis.show(values, Context(results=[one.result], look=Look.of([one.result])))
    assert [row[1].text for row in table.rows] == ["1.000"] * 5
