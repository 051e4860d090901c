"""What is cached is what the backbone says of the images, whatever is in the way of it."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from scipy.special import log_softmax

from pipeline.backbones import make_backbone
from pipeline.caching.job import CacheJob
from pipeline.caching.settings import CacheSettings
from pipeline.errors import UserError
from pipeline.files import read_json, sha256_file
from pipeline.images.decode import use_decoded
from pipeline.images.packed import PackedTars, open_packed
from pipeline.images.tars import read_tar
from pipeline.interruption import Interrupted, forget
from pipeline.progress import Silent
from pipeline.representation_store import RepresentationStore, tally
from pipeline.representation_store.records import TALLY
from pipeline.representation_store.verify import verify
from tests.asking import AskAfter


def cache(tars: PackedTars, store: Path, backbone: dict[str, object], **settings: object) -> RepresentationStore:
    job = CacheJob(tars=tars, stores={store: backbone}, settings=CacheSettings(**settings))
    job.prepare()
    for unit in job.missing():
        job.run(unit, Silent())
    return RepresentationStore.open(store)


def tree(store: Path) -> dict[str, str]:
    files = [path for path in sorted(store.rglob("*")) if path.is_file() and "telemetry" not in path.parts]
    return {str(path.relative_to(store)): sha256_file(path) for path in files}


def rewrite(tar: Path, target: Path, change: dict[int, bytes]) -> None:
    """Copy a tar, with the bytes of some of its images changed."""
    images = 0
    with tarfile.open(tar) as source, tarfile.open(target, "w") as copy:
        for member in source.getmembers():
            data = source.extractfile(member).read()  # type: ignore[union-attr]
            if member.name.endswith(".png"):
                data = change.get(images, data)
                images += 1
            member.size = len(data)
            copy.addfile(member, io.BytesIO(data))


def with_first_tar(packed: PackedTars, tar: Path) -> PackedTars:
    """Of which no manifest speaks."""
    nobodys = replace(packed.units[0], bytes=None, sha256=None)
    return replace(packed, units=(nobodys, *packed.units[1:]), paths=(tar, *packed.paths[1:]))


def test_rows_are_the_images_in_tar_order(packed, backbone, tmp_path):
    """Embedding, scores and labels against timm, Pillow and scipy alone."""
    store = cache(packed, tmp_path / "store", backbone, views=("center",))
    made = make_backbone(backbone)
    model = timm.create_model("resnet10t", num_classes=70).eval()
    model.load_state_dict(made.state_dict())
    p = made.preprocessing
    for unit, path in enumerate(packed.paths):
        samples = list(read_tar(path))
        assert store.commit(unit).rows == len(samples)
        assert [k.decode() for k in store.read("key", unit)] == [sample.key for sample in samples]
        labels = [int(sample.fields["cls"]) for sample in samples]
        np.testing.assert_array_equal(store.read("label", unit), labels)
        transform = timm.data.create_transform(
            (3, p.size, p.size),
            is_training=False,
            mean=p.mean,
            std=p.std,
            crop_pct=p.crop,
            interpolation=p.interpolation,
        )
        images = torch.stack([transform(Image.open(io.BytesIO(s.data)).convert("RGB")) for s in samples])
        with torch.inference_mode():
            logits = model(images).double().numpy()
            features = model.forward_head(model.forward_features(images), pre_logits=True).numpy()
        np.testing.assert_allclose(store.read("embedding", unit, view=0), features, rtol=2e-2, atol=2e-2)
        log_probability = log_softmax(logits, axis=1)
        loss = -log_probability[np.arange(len(labels)), labels]
        np.testing.assert_allclose(store.read("task_loss", unit, view=0), loss, rtol=1e-2)
        entropy = -(np.exp(log_probability) * log_probability).sum(axis=1)
        np.testing.assert_allclose(store.read("entropy", unit, view=0), entropy, rtol=1e-2)
        np.testing.assert_array_equal(store.read("top1_correct", unit, view=0), logits.argmax(axis=1) == labels)


def test_workers_and_order_do_not_change_a_byte(packed, backbone, tmp_path):
    settings = {"views": ("center",), "random_views": 2, "batch_size": 7}
    cache(packed, tmp_path / "one", backbone, workers=1, **settings)
    cache(packed, tmp_path / "three", backbone, workers=3, **settings)
    job = CacheJob(tars=packed, stores={tmp_path / "back": backbone}, settings=CacheSettings(workers=2, **settings))
    for unit in reversed(job.missing()):
        CacheJob(tars=packed, stores={tmp_path / "back": backbone}, settings=job.settings).run(unit, Silent())
    assert tree(tmp_path / "one") == tree(tmp_path / "three") == tree(tmp_path / "back")


def test_records_are_counted_while_they_are_made(packed, backbone, tmp_path, monkeypatch):
    monkeypatch.setattr(tally, "FEW", 0)
    monkeypatch.setattr(tally, "EVERY", 2)
    cache(packed, tmp_path, backbone)
    assert read_json(tmp_path / TALLY)["names"][:2] == ["000000.json", "000001.json"]


def test_random_views_differ_and_are_described(packed, backbone, tmp_path):
    store = cache(packed, tmp_path / "store", backbone, views=("center",), random_views=2)
    embedding = store.load("embedding").astype(np.float32)
    assert store.layout.views == ("center", "random0", "random1")
    assert (np.abs(embedding[:, 1] - embedding[:, 2]).max(axis=1) > 0).all()
    width = store.load("view_params")[:, :, store.layout.view_params.index("crop_width")]
    assert (width[:, 1:] > 0).all()
    assert (width[:, 1:] <= 1).all()
    assert width[:, 1].std() > 0.05


def test_another_config_on_the_same_store_is_refused(packed, backbone, tmp_path):
    cache(packed, tmp_path / "store", backbone)
    with pytest.raises(UserError, match=r"batch_size: 32 → 16"):
        cache(packed, tmp_path / "store", backbone, batch_size=16)
    with pytest.raises(UserError, match=r"backbone\.\S*: .* → "):
        cache(packed, tmp_path / "store", {**backbone, "seed": 1})


def test_bad_images_are_quarantined_and_the_rest_is_stored(packed, backbone, tmp_path):
    rewrite(packed.paths[0], tmp_path / "bad.tar", {1: b"no image", 4: b""})
    tars = with_first_tar(packed, tmp_path / "bad.tar")
    store = cache(tars, tmp_path / "store", backbone, max_quarantined=0.2)
    whole = cache(packed, tmp_path / "whole", backbone)
    commit = store.commit(0)
    assert [item.key for item in commit.quarantined] == [whole.keys()[1], whole.keys()[4]]
    assert "none of the formats" in commit.quarantined[0].reason
    assert commit.quarantined[1].reason == "empty file (0 bytes)"
    assert commit.rows == whole.commit(0).rows - 2
    kept = [i for i in range(whole.commit(0).rows) if i not in (1, 4)]
    np.testing.assert_allclose(
        store.read("embedding", 0).astype(float), whole.read("embedding", 0)[kept].astype(float), rtol=1e-2, atol=1e-3
    )


def test_a_rotten_unit_fails_alone_and_can_be_mended(packed, backbone, tmp_path):
    rewrite(packed.paths[0], tmp_path / "bad.tar", dict.fromkeys(range(12), b"no image"))
    job = CacheJob(
        tars=with_first_tar(packed, tmp_path / "bad.tar"),
        stores={tmp_path / "store": backbone},
        settings=CacheSettings(max_quarantined=0.01),
    )
    with pytest.raises(UserError, match=r"bad.tar: 12 of its 23 samples cannot be used.*none of the formats"):
        job.run(0, Silent())
    job.run(1, Silent())
    assert job.store.committed() == [1]
    assert (tmp_path / "store" / "failures" / "000000.json").exists()
    rewrite(packed.paths[0], tmp_path / "bad.tar", {})
    job.run(0, Silent())
    assert job.store.committed() == [0, 1]
    assert not list((tmp_path / "store" / "failures").iterdir())


def test_a_truncated_tar_fails_its_unit_and_stores_nothing(packed, backbone, tmp_path):
    data = packed.paths[0].read_bytes()
    (tmp_path / "cut.tar").write_bytes(data[: len(data) // 2])
    job = CacheJob(
        tars=with_first_tar(packed, tmp_path / "cut.tar"),
        stores={tmp_path / "store": backbone},
        settings=CacheSettings(),
    )
    with pytest.raises(UserError, match=r"cut.tar: broken at byte \d+"):
        job.run(0, Silent())
    assert job.store.committed() == []
    assert not job.store.shard_path("embedding", 0).exists()


def test_labels_must_fit_a_required_classifier(packed, backbone, tmp_path):
    names = list(packed.class_names)
    other = {**backbone, "class_list": [*names[:-1], "a cat"]}
    with pytest.raises(UserError, match=rf"1 of the 70 classes .* 70 classes of .*: 69: '{names[-1]}'"):
        cache(packed, tmp_path / "required", other, classifier="required")
    with pytest.raises(UserError, match=r"cache.classifier=off"):
        cache(packed, tmp_path / "partly", other)
    store = cache(packed, tmp_path / "off", other, classifier="off")
    assert np.isnan(store.load("task_loss")).all()
    foreign = {**backbone, "class_list": [f"cat {i}" for i in range(70)]}
    assert np.isnan(cache(packed, tmp_path / "none", foreign).load("entropy")).all()


def test_classes_are_matched_by_name_not_by_place(packed, backbone, tmp_path):
    store = cache(packed, tmp_path / "store", backbone)
    turned = cache(packed, tmp_path / "turned", {**backbone, "class_list": list(reversed(packed.class_names))})
    np.testing.assert_array_equal(store.load("entropy"), turned.load("entropy"))
    assert (store.load("task_loss") != turned.load("task_loss")).mean() > 0.9


def test_a_representation_that_is_not_finite_is_quarantined(packed, backbone, tmp_path):
    job = CacheJob(tars=packed, stores={tmp_path / "store": backbone}, settings=CacheSettings(max_quarantined=0.2))
    network = job.backbones[0].network
    honest = network.embed

    def embed(images_BCHW: torch.Tensor, taps: object) -> list[torch.Tensor]:
        [embedding_BD] = honest(images_BCHW, taps)
        embedding_BD[2, 5], embedding_BD[3, 0] = torch.nan, 1e6
        return [embedding_BD]

    network.embed = embed
    [commit] = job.run(0, Silent())
    keys = [sample.key for sample in read_tar(packed.paths[0])]
    assert [item.key for item in commit.quarantined] == [keys[2], keys[3]]
    assert all("not finite or beyond the range of float16" in item.reason for item in commit.quarantined)


def test_a_tar_of_others_with_a_bad_member_is_whole_to_verify(packed, backbone, tmp_path):
    """What the index pass counts is what reading gives: rows and quarantined together."""
    with tarfile.open(tmp_path / "theirs.tar", "w") as tar:
        for name, data in [("a.cls", b"0"), ("b.png", b"?"), ("b.cls", b"0"), *_png("c"), ("c.cls", b"1")]:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    (tmp_path / "classes.txt").write_text("\n".join(packed.class_names))
    tars = open_packed({"kind": "webdataset", "root": str(tmp_path), "class_list": str(tmp_path / "classes.txt")})
    store = cache(tars, tmp_path / "store", backbone, max_quarantined=1.0)
    assert (store.commit(0).rows, len(store.commit(0).quarantined)) == (1, 2)
    assert verify(store.path, Silent()) == []


def _png(key: str) -> list[tuple[str, bytes]]:
    buffer = io.BytesIO()
    Image.effect_noise((40, 30), 50).save(buffer, "PNG")
    return [(f"{key}.png", buffer.getvalue())]


def test_a_machine_that_goes_on_computes_as_the_one_that_began(packed, backbone, tmp_path):
    job = CacheJob(tars=packed, stores={tmp_path / "store": {**backbone, "compute": "bf16"}}, settings=CacheSettings())
    job.run(0, Silent())
    later = CacheJob(tars=packed, stores={tmp_path / "store": {**backbone, "compute": "auto"}}, settings=job.settings)
    later.run(1, Silent())
    assert later.backbones[0].describe() == job.backbones[0].describe()
    with pytest.raises(UserError, match=r'backbone.compute: "bf16" → "fp32"'):
        cache(packed, tmp_path / "store", {**backbone, "compute": "fp32"})


def test_several_backbones_in_one_pass_fill_the_stores_they_would_fill_alone(packed, backbone, tmp_path, monkeypatch):
    other = {**backbone, "seed": 1, "size": 40}
    settings = {"views": ("center",), "random_views": 1, "batch_size": 7}
    alone = [tree(cache(packed, tmp_path / f"alone{i}", b, **settings).path) for i, b in enumerate((backbone, other))]
    decoded = []
    monkeypatch.setattr(
        "pipeline.images.prepared.use_decoded", lambda data, use: decoded.append(1) or use_decoded(data, use)
    )
    stores = {tmp_path / "a": backbone, tmp_path / "b": other}
    first = CacheJob(tars=packed, stores={tmp_path / "a": backbone}, settings=CacheSettings(**settings))
    first.run(1, Silent())  # one of them is ahead
    job = CacheJob(tars=packed, stores=stores, settings=CacheSettings(**settings))
    decoded.clear()
    for unit in job.missing():
        job.run(unit, Silent())
    assert [tree(path) for path in stores] == alone
    assert len(decoded) == sum(info.samples for info in packed.units)


def test_a_batch_that_does_not_fit_is_run_in_halves(packed, backbone, tmp_path):
    settings = {"views": ("center",), "batch_size": 16}
    whole = cache(packed, tmp_path / "whole", backbone, **settings)
    job = CacheJob(tars=packed, stores={tmp_path / "halves": backbone}, settings=CacheSettings(**settings))
    network = job.backbones[0].network
    honest = network.embed

    def small(images_BCHW: torch.Tensor, taps: object) -> list[torch.Tensor]:
        if len(images_BCHW) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return honest(images_BCHW, taps)

    network.embed = small
    for unit in job.missing():
        job.run(unit, Silent())
    halves = RepresentationStore.open(tmp_path / "halves")
    assert halves.keys() == whole.keys()
    for array in ("embedding", "task_loss", "entropy"):
        np.testing.assert_allclose(
            halves.load(array).astype(float), whole.load(array).astype(float), rtol=1e-2, atol=1e-3
        )
    records = sorted((tmp_path / "halves" / "telemetry").iterdir())
    # a batch of 16 is halved, and its halves of 8; what is left, 7 or 8, once: 4 times in each unit
    assert [read_json(path)["halved_batches"] for path in records] == [4] * len(packed.units)


def test_one_view_that_does_not_fit_is_said(packed, backbone, tmp_path):
    job = CacheJob(tars=packed, stores={tmp_path / "store": backbone}, settings=CacheSettings())

    def full(images_BCHW: torch.Tensor, taps: object) -> list[torch.Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    job.backbones[0].network.embed = full
    with pytest.raises(UserError, match="not even one view fits into the free memory of cpu"):
        job.run(0, Silent())


def test_a_network_that_wants_one_size_gets_batches_of_one_size(packed, backbone, tmp_path):
    settings = {"views": ("center",), "batch_size": 16}
    whole = cache(packed, tmp_path / "whole", backbone, **settings)
    job = CacheJob(tars=packed, stores={tmp_path / "padded": backbone}, settings=CacheSettings(**settings))
    network, sizes = job.backbones[0].network, []
    network.fixed_batch = True
    honest = network.embed
    network.embed = lambda images, taps: sizes.append(len(images)) or honest(images, taps)
    for unit in job.missing():
        job.run(unit, Silent())
    assert set(sizes) == {16}
    padded = RepresentationStore.open(tmp_path / "padded")
    assert padded.keys() == whole.keys()
    np.testing.assert_allclose(padded.load("task_loss"), whole.load("task_loss"), rtol=1e-4)


def test_the_batch_size_that_was_found_is_kept(packed, backbone, tmp_path, monkeypatch):
    monkeypatch.setattr("pipeline.caching.job.find_batch_size", lambda group: 9)
    CacheJob(tars=packed, stores={tmp_path / "store": backbone}, settings=CacheSettings()).run(0, Silent())
    monkeypatch.setattr("pipeline.caching.job.find_batch_size", lambda group: 10)
    job = CacheJob(tars=packed, stores={tmp_path / "store": backbone}, settings=CacheSettings())
    job.run(1, Silent())
    assert job.store.run["batch_size"] == 9


def test_a_backbone_that_gives_nothing_but_nan_fails_the_unit(packed, backbone, tmp_path):
    job = CacheJob(tars=packed, stores={tmp_path / "store": backbone}, settings=CacheSettings())
    network = job.backbones[0].network
    network.embed = lambda images, taps: [torch.full((len(images), job.backbones[0].width), torch.nan)]
    with pytest.raises(UserError, match=r"23 of its 23 samples cannot be used.*not finite"):
        job.run(0, Silent())
    assert job.store.committed() == []
    assert "not finite" in read_json(tmp_path / "store" / "failures" / "000000.json")["reason"]


def test_a_backbone_that_fails_does_not_keep_the_others_from_their_stores(packed, backbone, tmp_path):
    stores = {tmp_path / "bad": backbone, tmp_path / "good": {**backbone, "seed": 1}}
    job = CacheJob(tars=packed, stores=stores, settings=CacheSettings())
    job.backbones[0].network.embed = lambda images, taps: [torch.full((len(images), 512), torch.nan)]
    with pytest.raises(UserError, match="not finite"):
        job.run(0, Silent())
    assert [target.lacks(0) for target in job.targets] == [True, False]
    assert job.missing() == [0, 1, 2]


@pytest.mark.parametrize("decode", ["threads", "processes"])
def test_asked_to_stop_in_the_middle_of_a_unit_it_drops_it_and_goes_on_to_the_same_bytes(
    packed, backbone, tmp_path, decode
):
    wanted = tree(cache(packed, tmp_path / "calm", backbone, views=("center",)).path)
    settings = CacheSettings(views=("center",), decode=decode, workers=1)
    job = CacheJob(tars=packed, stores={tmp_path / "store": backbone}, settings=settings)
    job.prepare()
    job.run(0, Silent())
    with pytest.raises(Interrupted):
        job.run(1, AskAfter(5))
    assert sorted(RepresentationStore.open(tmp_path / "store").counts()) == [0]
    assert not list((tmp_path / "store").glob("failures/*"))
    assert not list((tmp_path / "store").rglob("*/c/1/*"))
    forget()
    for unit in job.missing():  # the same job: its workers are as good as before
        job.run(unit, Silent())
    assert tree(tmp_path / "store") == wanted
    job._workers.close()
