import pickle
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pipeline.backbones import make_backbone
from pipeline.errors import UserError
from pipeline.heads import head_names
from pipeline.images.decode import decode
from pipeline.release.bundle import WEIGHTS
from pipeline.release.model import load_model
from pipeline.training.checkpoints import load_head
from tests.pipeline.backbones.test_files import saved
from tests.pipeline.release.conftest import BACKBONE


def by_hand(paths):
    """Preprocessed by Pillow and arithmetic: shorter side to 35 = ⌊32 / 0.9⌋, central square of 32, normalised."""
    batch = []
    for path in paths:
        image = decode(path.read_bytes())
        short = min(image.size)
        width, height = (35 * side // short for side in image.size)
        left, top = round((width - 32) / 2), round((height - 32) / 2)
        resized = image.resize((width, height), Image.Resampling.BICUBIC).crop((left, top, left + 32, top + 32))
        batch.append((np.asarray(resized, dtype=np.float32) / 255).transpose(2, 0, 1))
    preprocessing = make_backbone(BACKBONE).preprocessing
    mean, std = (np.array(value, np.float32)[:, None, None] for value in (preprocessing.mean, preprocessing.std))
    return torch.from_numpy((np.stack(batch) - mean) / std)


def test_it_is_the_backbone_and_the_head_that_were_released(release, images, tmp_path):
    folder = release()
    embedding, uncertainty = load_model(folder)(images)
    alone = make_backbone(BACKBONE).represent(by_hand(images)).embedding_BD
    assert torch.allclose(embedding, alone, atol=1e-5)
    wanted = load_head(tmp_path / "model-head")(embedding).uncertainty_B
    assert torch.equal(uncertainty, wanted)
    assert embedding.dtype == uncertainty.dtype == torch.float32
    assert embedding.shape == (5, make_backbone(BACKBONE).width)
    assert uncertainty.shape == (5,)
    assert not embedding.requires_grad
    assert not uncertainty.requires_grad


def test_the_embedding_is_the_backbones_alone_bit_for_bit(release, images):
    model = load_model(release())
    batch = torch.stack([model.preprocess(path) for path in images])
    assert torch.equal(model(images).embedding, make_backbone(BACKBONE).represent(batch).embedding_BD)


def test_every_way_to_give_an_image_gives_the_same(release, images):
    model = load_model(release())
    rgb = images[0]
    wanted = model(rgb)
    pixels = np.asarray(Image.open(rgb))[None]
    ways = [
        str(rgb),
        [rgb],
        Image.open(rgb),
        [Image.open(rgb)],
        pixels,
        torch.from_numpy(pixels.copy()),
        np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)),
        model.preprocess(rgb)[None],
        model.preprocess(Image.open(rgb))[None].numpy(),
    ]
    for way in ways:
        given = model(way)
        assert torch.equal(given.embedding, wanted.embedding)
        assert torch.equal(given.uncertainty, wanted.uncertainty)


def test_a_turned_file_and_a_turned_image_are_made_upright(release, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "turned.png", exif=exif)
    model = load_model(release())
    upright = model(np.rot90(pixels, -1)[None])
    for way in (tmp_path / "turned.png", Image.open(tmp_path / "turned.png")):
        assert torch.equal(model(way).embedding, upright.embedding)


def test_many_images_go_in_batches(release, images):
    model = load_model(release())
    wanted = model(images)
    model.batch_size = 2
    embedding, uncertainty = model(images)
    assert torch.allclose(embedding, wanted.embedding, atol=1e-6)
    assert torch.allclose(uncertainty, wanted.uncertainty, atol=1e-6)
    assert model(model.preprocess(images[0]).expand(5, -1, -1, -1)).embedding.shape == embedding.shape


def test_a_batch_size_that_is_none_is_refused_when_it_is_set(release, images):
    model = load_model(release())
    wanted = model(images[:2]).embedding
    for size in (0, -1, 2.5, 2.0, "8", None, True, np.float32(4)):
        with pytest.raises(UserError, match=r"^batch_size: .* must be a whole number of at least 1"):
            model.batch_size = size
    assert model.batch_size == 32
    model.batch_size = np.int64(3)
    assert type(model.batch_size) is int
    assert torch.equal(model(images[:2]).embedding, wanted)


def test_what_the_caller_has_set_for_other_networks_changes_nothing(release, images):
    folder = release()
    wanted = load_model(folder)(images)
    torch.set_default_dtype(torch.float64)
    try:
        made = load_model(folder).to("cpu")(images)
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = load_model(folder)(images)
    with torch.device("meta"):  # as torch.set_default_device("cuda") where there is one
        model = load_model(folder).to("cpu")
        elsewhere = model(torch.stack([model.preprocess(image) for image in images]).contiguous())
        again = model(images)
    for found in (made, rounded, elsewhere, again):
        assert [torch.equal(one, other) for one, other in zip(wanted, found, strict=True)] == [True, True]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_pixels_are_normalised_in_float32_whatever_the_default_is(release, images, dtype):
    imagenets = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}  # no sums of powers of two
    model = load_model(release(backbone={**BACKBONE, **imagenets}))
    wanted, prepared = model(images), model.preprocess(images[0])
    torch.set_default_dtype(dtype)
    try:
        found, again = model(images), model.preprocess(images[0])
        as_floats = model(torch.stack([model.preprocess(image) for image in images]))
    finally:
        torch.set_default_dtype(torch.float32)
    assert again.dtype == torch.float32
    assert torch.equal(again, prepared)
    for one, other in zip([*wanted, *wanted], [*found, *as_floats], strict=True):
        assert torch.equal(one, other)


def test_moving_it_changes_nothing(release, images):
    model = load_model(release())
    wanted = model(images)
    assert model.to("cpu") is model
    assert torch.equal(model(images).embedding, wanted.embedding)
    assert torch.equal(model(images).uncertainty, wanted.uncertainty)
    with pytest.raises(UserError, match="nowhere"):
        model.to("nowhere")


@pytest.mark.parametrize("kind", head_names())
def test_every_head_can_be_released(release, images, kind, tmp_path):
    model = load_model(release(head={"kind": kind}))
    scores = model.scores(images)
    pixels_BCHW = torch.stack([model.preprocess(image) for image in images])
    with torch.no_grad():
        wanted = load_head(tmp_path / "model-head")(model.backbone.represent(pixels_BCHW).embedding_BD)
    assert torch.equal(model(images).embedding, wanted.embedding_BE.float())
    assert scores.keys() == wanted.uncertainty.keys()
    for name, value_B in scores.items():
        assert torch.equal(value_B, wanted.uncertainty[name].float())
    assert torch.equal(model(images).uncertainty, scores[wanted.primary])


@pytest.mark.parametrize("kind", head_names())
def test_a_file_that_is_overwritten_in_place_changes_no_loaded_model(release, images, kind):
    folder = release(head={"kind": kind})
    model = load_model(folder)
    wanted = model.scores(images)
    with (folder / WEIGHTS).open("r+b") as file:  # as `cp` writes a newer release over it; what is mapped changes
        file.write(b"\xff" * (folder / WEIGHTS).stat().st_size)
    found = model.scores(images)
    assert all(torch.equal(found[name], value_B) for name, value_B in wanted.items())


def test_workers_of_a_data_loader_get_the_preprocessing_and_no_network(release, images):
    model = load_model(release())
    sent = pickle.dumps(model.preprocess)
    assert len(sent) < 1000
    assert torch.equal(pickle.loads(sent)(images[0]), model.preprocess(images[0]))


@pytest.mark.parametrize(
    ("given", "kind"),
    [(np.zeros((5, 5, 3), np.uint8), "ndarray"), (torch.zeros(3, 5, 5), "Tensor"), (["a.png"], "list"), (b"", "bytes")],
)
def test_what_cannot_be_preprocessed_is_told_what_can(release, given, kind):
    with pytest.raises(UserError, match=rf"takes one path or PIL image, not {kind}\. .*PIL\.Image\.fromarray"):
        load_model(release()).preprocess(given)


def test_a_sequence_without_slices_is_a_list_too(release, images):
    model = load_model(release())
    model.batch_size = 2
    assert torch.equal(model(deque(images)).embedding, model(images).embedding)


def test_it_is_not_compiled_where_it_is_loaded(release):
    model = load_model(release(backbone={**BACKBONE, "compile": "on"}))
    assert model.backbone.describe()["compile"] is False


def test_a_network_in_a_file_is_moved_too(release, tmp_path):
    _, values = saved("torchscript", "vector", tmp_path)
    path = Path(values["path"])
    model = load_model(release(backbone=values, carried=False), backbone_weights=path)
    image = Image.new("RGB", (10, 10), "red")
    wanted = model(image)
    assert torch.equal(model.to("cpu")(image).uncertainty, wanted.uncertainty)
    path.unlink()
    with pytest.raises(UserError, match="no file at"):
        model.to("cpu")
    assert torch.equal(model(image).uncertainty, wanted.uncertainty)  # as it was


def test_a_file_is_compared_before_it_is_opened_and_a_pickle_read_for_those_who_say_so(release, tmp_path, monkeypatch):
    _, values = saved("export", "vector", tmp_path)
    bundle, path = release(backbone=values, carried=False), Path(values["path"])
    with pytest.raises(UserError, match=r"Get the file vector\.pt2 and load .*\"vector\.pt2\", trusted=True\)"):
        load_model(bundle)
    model = load_model(bundle, backbone_weights=path, trusted=True)
    assert model(Image.new("RGB", (10, 10))).uncertainty.shape == (1,)
    monkeypatch.setattr(torch.export, "load", None)
    with pytest.raises(UserError, match="with pickle, which runs the code in it"):
        load_model(bundle, backbone_weights=path)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(UserError, match=r"has other weights than .* Get the file vector\.pt2"):
        load_model(bundle, backbone_weights=path, trusted=True)
    with pytest.raises(UserError, match=r"^backbone_weights: no file at .*absent"):
        load_model(bundle, backbone_weights=tmp_path / "absent", trusted=True)


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("pipeline.heads.PACKAGE", "its head: unknown head .* belongs into pipeline/heads"),
        (
            "pipeline.release.model.SOURCES",
            "its backbone: unknown backbone source 'timm'.* belongs into tests/toy_heads",
        ),
    ],
)
def test_what_is_not_here_is_said_to_be_a_file_of_whoever_released_it(release, monkeypatch, package, said):
    bundle = release()
    monkeypatch.setattr(package, "tests.toy_heads")
    with pytest.raises(UserError, match=rf"^{bundle}: this Hedgerow cannot make {said}"):
        load_model(bundle)


def test_it_says_what_it_is(release):
    text = repr(load_model(release()))
    assert "loss_prediction (seed 3)" in text
    assert "test_vit" in text
    assert "cpu" in text


def test_files_that_cannot_be_read_are_named(release, tmp_path):
    model = load_model(release())
    with pytest.raises(UserError, match=r"absent\.png cannot be read \(No such file"):
        model(tmp_path / "absent.png")
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(UserError, match=r"text\.png: none of the formats"):
        model(tmp_path / "text.png")
    with pytest.raises(UserError, match="null byte"):
        model("a\0.png")
    with pytest.raises(UserError, match="the PIL image at index 1: no pixels"):
        model([Image.new("RGB", (5, 5)), Image.new("RGB", (0, 5))])


def test_a_pil_image_whose_file_was_closed_is_told_when_to_load_it(release, images):
    model = load_model(release())
    with Image.open(images[0]) as late, Image.open(images[0]) as in_time:
        in_time.load()
    with images[0].open("rb") as file:
        also_late = Image.open(file)
    for image in (late, also_late):
        with pytest.raises(UserError, match=r"index 1: its file was closed .* call load\(\) of the image"):
            model([in_time, image])
    assert torch.equal(model(in_time).embedding, model(images[0]).embedding)


def test_a_backbone_that_is_not_carried_is_made_and_compared(release, images, monkeypatch):
    carried, lean = load_model(release()), release("lean", carried=False)
    model = load_model(lean)
    assert torch.equal(model(images).embedding, carried(images).embedding)
    with pytest.raises(UserError, match=r"come from no file, so vit\.safetensors would not be read"):
        load_model(lean, backbone_weights=Path("vit.safetensors"))
    monkeypatch.setattr(
        "pipeline.release.model.make_backbone", lambda values: make_backbone({**values, "seed": values["seed"] + 1})
    )
    with pytest.raises(UserError, match="other weights than the head was trained on"):
        load_model(lean)


def test_a_weights_file_is_asked_for_and_compared(release, images, tmp_path):
    from safetensors.torch import save_file

    save_file(dict(make_backbone(BACKBONE).state_dict()), tmp_path / "vit.safetensors")
    other = {name: tensor + 1 for name, tensor in make_backbone(BACKBONE).state_dict().items()}
    save_file(other, tmp_path / "other.safetensors")
    values = {**BACKBONE, "weights": "file", "path": str(tmp_path / "vit.safetensors")}
    lean, whole = release("lean", backbone=values, carried=False), release("whole", backbone=values)
    for file in (lean / "config.json", whole / "config.json"):
        assert str(tmp_path) not in file.read_text()
    with pytest.raises(UserError, match=r"Get the file\s+vit\.safetensors and load with .*backbone_weights"):
        load_model(lean)
    with pytest.raises(UserError, match="other weights"):
        load_model(lean, backbone_weights=tmp_path / "other.safetensors")
    (tmp_path / "vit.safetensors").rename(tmp_path / "moved.safetensors")
    found = load_model(lean, backbone_weights=tmp_path / "moved.safetensors")
    assert torch.equal(found(images).embedding, load_model(whole)(images).embedding)
