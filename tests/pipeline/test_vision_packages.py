"""A torchvision whose operators do not load beside this torch is said in one line, wherever it is met first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.vision_packages import fitting_torch

REASON = "operator torchvision::nms does not exist"
TRIED = """
import sys
sys.path.insert(0, sys.argv[1])
from pipeline.backbones import make_backbone, network_class
from pipeline.class_lists import class_list
from pipeline.errors import UserError

for attempt in (
    lambda: class_list("imagenet1k", "dataset.class_list"),
    lambda: make_backbone({"model": "resnet10t", "weights": "random", "device": "cpu"}),
    lambda: make_backbone({"model": "digit_vit", "weights": "ours", "device": "cpu"}),
    lambda: network_class({"source": "torchvision"}),
):
    try:
        attempt()
    except UserError as error:
        print(error)
"""


def test_a_torchvision_that_does_not_load_is_a_line_that_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(f"raise RuntimeError({REASON!r})")
    command = [sys.executable, "-c", TRIED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    for line in lines:
        assert line.startswith("torch ")
        assert " and torchvision " in line
        assert f"do not fit together ({REASON})" in line
        assert "pip install --upgrade --force-reinstall torch torchvision" in line


@pytest.mark.parametrize("error", [ImportError("no module named 'safetensors'"), RuntimeError("CUDA"), KeyError("x")])
def test_what_is_not_about_torchvision_passes_as_it_is(error: Exception) -> None:
    with pytest.raises(type(error)) as raised, fitting_torch():
        raise error
    assert raised.value is error
