import io
import tarfile
from typing import get_args

import pytest
import torch

from pipeline.backbones import make_backbone
from pipeline.errors import UserError
from pipeline.release.check import first_batch, self_check
from pipeline.release.model import load_model
from pipeline.representation_store import Dtype
from pipeline.representation_store.encoding import as_stored
from tests.pipeline.release.conftest import BACKBONE


@pytest.fixture
def tar(tmp_path, images):
    """The five images as a packed tar."""
    path = tmp_path / "00000.tar"
    with tarfile.open(path, "w") as file:
        for place, image in enumerate(images):
            for name, data in ((f"k{place}.png", image.read_bytes()), (f"k{place}.cls", b"0")):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                file.addfile(info, io.BytesIO(data))
    return path


def stored(model, images, dtype) -> dict[str, float]:
    """What an evaluation stores: uncertainties of embeddings that were rounded by the store."""
    embedding = model(list(images.values())).embedding.numpy()
    with torch.no_grad():
        uncertainty = model.head(torch.from_numpy(as_stored(embedding, dtype))).uncertainty_B
    return dict(zip(images, uncertainty.double().tolist(), strict=True))


def test_the_first_batch_is_in_the_tars_order_and_without_what_was_not_scored(tar):
    assert list(first_batch([tar], {"k3": 0.0, "k0": 0.0, "k2": 0.0}, count=2)) == ["k0", "k2"]
    assert list(first_batch([tar], {"k3": 0.0}, count=2)) == ["k3"]


@pytest.mark.parametrize("dtype", get_args(Dtype))
def test_a_true_release_passes(release, tar, dtype):
    model, alone = load_model(release()), make_backbone(BACKBONE)
    images = first_batch([tar], dict.fromkeys(("k0", "k1", "k2"), 0.0), count=3)
    scored = stored(model, images, dtype)
    found = self_check(model, alone, images, scored, stored_as=dtype, dataset="unseen")
    assert found == {**found, "images": 3, "embedding_identical": True, "difference": 0.0, "dataset": "unseen"}
    assert (found["rounding"] > 0) == (dtype != "float32")


def test_another_head_or_backbone_fails(release, tar):
    model, alone = load_model(release()), make_backbone(BACKBONE)
    images = first_batch([tar], dict.fromkeys(("k0", "k1"), 0.0), count=2)
    scored = stored(model, images, "float16")
    off = {**scored, "k1": scored["k1"] * 1.001}
    with pytest.raises(UserError, match=r"differ from the evaluated ones by up to 1\.0e-03"):
        self_check(model, alone, images, off, stored_as="float16", dataset="unseen")
    other = make_backbone({**BACKBONE, "seed": 1})
    with pytest.raises(UserError, match="not that of the backbone alone"):
        self_check(model, other, images, scored, stored_as="float16", dataset="unseen")
    missing = {**scored, "k0": float("nan")}
    with pytest.raises(UserError, match="differ from the evaluated"):
        self_check(model, alone, images, missing, stored_as="float16", dataset="unseen")
