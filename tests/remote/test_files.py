"""Whole or absent, on an object store too; and what is said when it cannot be reached."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import boto3
import pytest

from pipeline.errors import UserError
from pipeline.files import append_text, atomic_file, move_file, read_json, sha256_file, write_bytes, write_json
from pipeline.places import RemotePath, as_place
from tests.remote.conftest import objects

pytestmark = pytest.mark.xdist_group("s3")


def test_writing_and_reading(s3: boto3.client, bucket: RemotePath) -> None:
    write_json(bucket / "a" / "b.json", {"x": [1]})
    with atomic_file(bucket / "a" / "c") as file:
        file.write(b"12")
        assert not (bucket / "a" / "c").exists()
        file.write(b"34")
    append_text(bucket / "log", "one\n")
    append_text(bucket / "log", "two\n")
    assert read_json(bucket / "a" / "b.json") == {"x": [1]}
    assert objects(s3, bucket) == {"a/b.json": b'{\n  "x": [\n    1\n  ]\n}\n', "a/c": b"1234", "log": b"one\ntwo\n"}
    assert sha256_file(bucket / "a" / "c") == hashlib.sha256(b"1234").hexdigest()
    assert (bucket / "a" / "c").stat().st_size == 4


def _half(place: RemotePath) -> None:
    with atomic_file(place) as file:
        file.write(b"half")
        raise RuntimeError


def test_nothing_is_uploaded_when_the_body_raises(s3: boto3.client, bucket: RemotePath) -> None:
    write_bytes(bucket / "old", b"old")
    for name in ("old", "new"):
        with pytest.raises(RuntimeError):
            _half(bucket / name)
    assert objects(s3, bucket) == {"old": b"old"}


def test_listing(bucket: RemotePath) -> None:
    for name in ("x/1.tar", "x/2.tar", "x/[3].txt", "x/y/4.tar", "xx/5.tar"):
        write_bytes(bucket / name, b".")
    assert [place.name for place in (bucket / "x").iterdir()] == ["1.tar", "2.tar", "[3].txt", "y"]
    assert [str(place) for place in bucket.glob("x/*.tar")] == [str(bucket / "x/1.tar"), str(bucket / "x/2.tar")]
    assert [(bucket / name).is_dir() for name in ("x", "x/y", "x/1.tar", "z")] == [True, True, False, False]
    assert [(bucket / name).is_file() for name in ("x", "x/1.tar", "z")] == [False, True, False]
    assert list((bucket / "z").glob("*")) == []
    (bucket / "x" / "1.tar").unlink()
    (bucket / "x" / "1.tar").unlink(missing_ok=True)
    assert not (bucket / "x" / "1.tar").exists()


def test_another_writer_is_seen(s3: boto3.client, bucket: RemotePath) -> None:
    """No listing and no "is not there" is remembered."""
    name = str(bucket).removeprefix("s3://").strip("/")
    assert not (bucket / "d" / "a").exists()
    s3.put_object(Bucket=name, Key="d/a", Body=b"1")
    assert [place.name for place in (bucket / "d").iterdir()] == ["a"]
    s3.put_object(Bucket=name, Key="d/b", Body=b"1")
    assert [place.name for place in (bucket / "d").iterdir()] == ["a", "b"]
    s3.delete_object(Bucket=name, Key="d/a")
    assert not (bucket / "d" / "a").exists()


def test_a_missing_object_and_a_missing_bucket(s3: boto3.client, bucket: RemotePath) -> None:
    with pytest.raises(FileNotFoundError):
        (bucket / "no").read_bytes()
    nowhere = as_place("s3://no-such-bucket-here/x")
    with pytest.raises(UserError, match=r"s3://no-such-bucket-here/x: The specified bucket does not exist\. Check"):
        write_bytes(nowhere, b"1")


@pytest.mark.usefixtures("new_connections")
def test_no_credentials(bucket: RemotePath, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for ask in (
        lambda: (bucket / "x").exists(),
        lambda: write_bytes(bucket / "x", b"1"),
        lambda: list(bucket.glob("*")),
    ):
        with pytest.raises(UserError, match=r"no access \(Unable to locate credentials\)\. Check the credentials"):
            ask()


@pytest.mark.usefixtures("new_connections")
def test_no_server(bucket: RemotePath, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as held:  # bound, but nobody listens
        held.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{held.getsockname()[1]}")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        with pytest.raises(UserError, match=r"cannot be reached .*What is done stays done"):
            (bucket / "x").exists()


def test_a_file_gets_another_name_and_takes_its_place(s3: boto3.client, bucket: RemotePath, tmp_path: Path) -> None:
    for folder in (bucket, tmp_path):
        write_bytes(folder / "new", b"new")
        write_bytes(folder / "old", b"old")
        move_file(folder / "new", folder / "old")
        assert [path.name for path in folder.iterdir()] == ["old"]
        assert (folder / "old").read_bytes() == b"new"
