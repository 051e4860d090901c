from importlib import metadata

import pytest

from pipeline.backbones import make_backbone, parse_backbone
from pipeline.release.assemble import carries
from pipeline.release.licence import Licence, backbone_licence
from tests.pipeline.release.conftest import BACKBONE


def licence_of(**values) -> Licence:
    return backbone_licence(parse_backbone(values))


def test_timm_says_it_of_its_models():
    assert licence_of(model="vit_large_patch16_224.augreg_in21k").name == "apache-2.0"
    free, bound = licence_of(model="vit_small_patch16_224"), licence_of(model="vit_base_patch16_224.mae")
    assert free.permits_copies
    assert bound.name == "cc-by-nc-4.0"
    assert not bound.permits_copies


def test_our_own_is_ours_and_files_are_unknown(tmp_path):
    assert licence_of(model="digit_vit", weights="ours").permits_copies
    assert licence_of(model="test_vit", weights="file", path=tmp_path / "x.npz").name == "unknown"


@pytest.mark.parametrize(
    ("expression", "text", "name"),
    [
        (None, "Apache Software License 2.0\n\nCopyright (c) 2020", "apache-2.0"),
        (None, "\n    Apache License\n    Version 2.0, January 2004\n", "apache-2.0"),
        (None, "MIT License\n\nCopyright", "mit"),
        (None, "All rights reserved. Not the MIT License.", "unknown"),
        (None, None, "unknown"),
        ("BSD-3-Clause", "MIT License", "bsd-3-clause"),
    ],
)
def test_a_packages_metadata_and_then_its_licence_file_say_it(tmp_path, monkeypatch, expression, text, name):
    info = tmp_path / "weights-1.0.dist-info"
    info.mkdir()
    said = f"License-Expression: {expression}\n" if expression else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: weights\nVersion: 1.0\n{said}")
    files = ["METADATA", "RECORD"]
    if text is not None:
        (info / "LICENSE").write_text(text)
        files.append("LICENSE")
    (info / "RECORD").write_text("".join(f"{info.name}/{file},,\n" for file in files))
    monkeypatch.setattr(metadata, "distribution", lambda _: metadata.Distribution.at(info))
    assert licence_of(model="test_vit", weights="package", package="weights").name == name


def test_auto_carries_what_is_permitted_and_small():
    backbone = make_backbone(BACKBONE)
    megabytes = sum(tensor.nbytes for tensor in backbone.state_dict().values()) / 1e6
    mit, nobody = Licence(name="mit", said_by="x"), Licence(name="unknown", said_by="x")
    assert carries(backbone, mit, "auto", max_mb=megabytes)
    assert not carries(backbone, mit, "auto", max_mb=megabytes * 0.999)
    assert not carries(backbone, nobody, "auto", max_mb=megabytes)
    assert carries(backbone, nobody, "yes", max_mb=0)
    assert not carries(backbone, mit, "no", max_mb=megabytes)
