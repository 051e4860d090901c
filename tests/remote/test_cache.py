"""``submit stage=cache`` from tars that are elsewhere into a store that is elsewhere."""

from __future__ import annotations

import contextlib
import functools
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import boto3
import numpy as np
import pytest
from PIL import Image

from cluster.submit import main
from pipeline import fetching
from pipeline.files import write_bytes
from pipeline.places import Place, RemotePath, as_place
from pipeline.representation_store import Commit, store
from tests.remote.conftest import files, objects

pytestmark = pytest.mark.xdist_group("s3")
TARS, IMAGES = 3, 4


def tar_of(number: int, images: int = IMAGES) -> bytes:
    rng, buffer = np.random.default_rng(number), io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for index in range(images):
            png = io.BytesIO()
            Image.fromarray(rng.integers(0, 255, (24, 24, 3), dtype=np.uint8)).save(png, "PNG")
            for name, data in (
                (f"{number}-{index}.png", png.getvalue()),
                (f"{number}-{index}.cls", b"%d" % (index % 2)),
            ):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tars")
    for number in range(TARS):
        (folder / f"{number}.tar").write_bytes(tar_of(number))
    (folder / "classes.txt").write_text("ant\nbee\n")
    return folder


def submit(tars: object, output: object, *more: str, stage: str = "cache") -> tuple[int, str]:
    """Exit code, and all that was said."""
    said = io.StringIO()
    words = [
        f"stage={stage}",
        "dataset=webdataset",
        f"dataset.root={tars}",
        "dataset.tars='{0..2}.tar'",
        f"dataset.class_list={tars}/classes.txt",
        "dataset.max_rows_per_unit=5",
        "backbone=digit_vit",
        "backbone.device=cpu",
        "cache.views=[center]",
        "cache.random_views=1",
        "cache.classifier=off",
        "cache.workers=1",
        f"cache.output={output}",
        *more,
    ]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    return code, said.getvalue()


@pytest.fixture(scope="module")
def calm(tars: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a local run."""
    output = tmp_path_factory.mktemp("calm")
    code, said = submit(tars, output)
    assert code == 0, said
    return output / "store"


def uploaded(s3: boto3.client, bucket: RemotePath, tars: Path) -> RemotePath:
    for path in tars.iterdir():
        s3.upload_file(str(path), str(bucket).removeprefix("s3://").strip("/"), f"in/{path.name}")
    return bucket / "in"


def without_telemetry(found: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in found.items() if not name.startswith("telemetry/")}


def test_from_s3_to_s3_killed_on_the_way(
    s3: boto3.client, bucket: RemotePath, tars: Path, calm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, committed = uploaded(s3, bucket, tars), store.write_commit

    def killed(folder: Place, commit: Commit) -> None:
        if commit.unit == 1:  # its arrays are there, its record is not
            raise KeyboardInterrupt
        committed(folder, commit)

    with monkeypatch.context() as patched:
        patched.setattr(store, "write_commit", killed)
        code, said = submit(root, bucket / "out")
    assert code == 130, said
    assert set(objects(s3, bucket / "out" / "store" / "commits")) == {"000000.json"}
    code, said = submit(root, bucket / "out")
    assert code == 0, said
    assert "2 of 3 units to do" in said
    there = objects(s3, bucket / "out")
    made = {name.removeprefix("store/"): data for name, data in there.items() if name.startswith("store/")}
    assert without_telemetry(made) == without_telemetry(files(calm))
    assert {"run.json", "config.yaml", "log.txt"} <= set(there)
    assert "nothing to do" in submit(root, bucket / "out")[1]
    assert list(Path(fetching.tempfile.gettempdir()).glob("hedgerow-fetch-*")) == []


def test_a_missing_a_broken_and_a_full_tar_fail_alone(s3: boto3.client, bucket: RemotePath, tars: Path) -> None:
    root = uploaded(s3, bucket, tars)
    name = str(bucket).removeprefix("s3://").strip("/")
    s3.delete_object(Bucket=name, Key="in/0.tar")
    s3.put_object(Bucket=name, Key="in/1.tar", Body=tar_of(1)[:1000])
    s3.put_object(Bucket=name, Key="in/2.tar", Body=tar_of(2, images=6))
    s3.put_object(Bucket=name, Key="in/3.tar", Body=tar_of(3))
    code, said = submit(root, bucket / "out", "dataset.tars='{0..3}.tar'")
    assert code == 1, said
    assert f"unit 000000 (0.tar): no file at {root}/0.tar" in said
    assert f"unit 000001 (1.tar): {root}/1.tar" in said
    assert f"unit 000002 (2.tar): {root}/2.tar: 6 samples, more than dataset.max_rows_per_unit=5" in said
    assert set(objects(s3, bucket / "out" / "store" / "commits")) == {"000003.json"}
    assert set(objects(s3, bucket / "out" / "store" / "failures")) == {f"00000{unit}.json" for unit in range(3)}
    code, said = submit(root, bucket / "out", "dataset.tars='{0..3}.tar'", "dataset.max_key_bytes=2")
    assert code == 1
    assert "another config" in said


def test_a_glob_and_a_manifest_on_s3(s3: boto3.client, bucket: RemotePath, tars: Path, tmp_path: Path) -> None:
    root = uploaded(s3, bucket, tars)
    code, said = submit(root, tmp_path / "a", "dataset.tars='[01].tar'")
    assert code == 0, said
    assert sorted(path.name for path in (tmp_path / "a" / "store" / "commits").iterdir()) == [
        "000000.json",
        "000001.json",
    ]
    code, said = submit(root, tmp_path / "b", "dataset.max_rows_per_unit=null")
    assert code == 1
    assert "remote tars are not read beforehand. Set dataset.max_rows_per_unit" in said
    code, said = submit(root / "0.tar", tmp_path / "c", f"dataset.class_list={root}/classes.txt")
    assert code == 1
    assert f"Write dataset.root={root} dataset.tars=0.tar" in said


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Flaky(Quiet):
    """Breaks off in the middle of every tar, once."""

    seen: set[str] = set()  # noqa: RUF012

    def copyfile(self, source: object, outputfile: object) -> None:
        if self.path.endswith(".tar") and self.path not in self.seen:
            self.seen.add(self.path)
            outputfile.write(source.read(700))  # type: ignore[attr-defined]
            self.close_connection = True
            return
        super().copyfile(source, outputfile)  # type: ignore[type-var]


@pytest.fixture
def web(tars: Path) -> Iterator[str]:
    """Address of a web server that has the tars."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Flaky, directory=str(tars)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_from_a_web_server_that_breaks_off(
    web: str, tars: Path, calm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PAUSE_S", 0.0)
    code, said = submit(web, tmp_path / "out")
    assert code == 0, said
    assert without_telemetry(files(tmp_path / "out" / "store")) == without_telemetry(files(calm))
    assert len(Flaky.seen) == TARS
    code, said = submit(web, tmp_path / "glob", "dataset.tars='*.tar'")
    assert code == 1
    assert "http has no listing" in said


def test_the_copies_of_a_killed_process_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fetching.tempfile, "tempdir", str(tmp_path))
    stray = tmp_path / "hedgerow-fetch-abc"
    (stray / "copy").mkdir(parents=True)
    (stray / "lock").touch()
    assert fetching.sweep_copies() == 0  # young
    monkeypatch.setattr(fetching, "_YOUNG_S", -1.0)
    with (stray / "lock").open() as lock:
        fetching.fcntl.flock(lock, fetching.fcntl.LOCK_EX)
        assert fetching.sweep_copies() == 0  # its process lives
    assert fetching.sweep_copies() == 1
    assert not stray.exists()


def test_heads_from_s3_to_s3(s3: boto3.client, bucket: RemotePath, tars: Path, tmp_path: Path) -> None:
    """The whole of ``runs_root`` on an object store, for the stages up to the head."""
    root = uploaded(s3, bucket, tars)
    write_bytes(root / "one.tar", tar_of(0, images=40))
    words = ["dataset.tars=one.tar", "dataset.max_rows_per_unit=40", "probe.folds=2", "probe.l2=[0.1]"]
    words += ["train_head.steps=3", "train_head.batch_size=16", "train_head.seeds=[0]", "train_head.task_loss=probe"]
    heads = []
    for place in (bucket / "runs", tmp_path / "runs"):
        code, said = submit(root, "null", f"runs_root={place}", *words, stage="[cache,probe,train_head]")
        assert code == 0, said
        (folder,) = [path for path in as_place(str(place)).iterdir() if path.name.startswith("train_head-")]
        heads.append([(folder / "seed-0" / name).read_bytes() for name in ("head.safetensors", "head.json")])
    assert heads[0] == heads[1]
