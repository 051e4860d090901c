"""A server that speaks the S3 protocol, on loopback."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

import boto3
import fsspec
import pytest
from moto.server import ThreadedMotoServer

from pipeline.places import RemotePath, as_place

NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[boto3.client]:
    """A client of the server; the environment leads there, as a user's does to theirs."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    host, port = server.get_host_and_port()
    nothing = str(tmp_path_factory.mktemp("aws") / "none")
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": nothing,
            "AWS_SHARED_CREDENTIALS_FILE": nothing,
        }.items():
            patched.setenv(name, value)
        yield boto3.client("s3")
    server.stop()


@pytest.fixture
def new_connections(s3: boto3.client) -> Iterator[None]:
    """fsspec keeps one connection for equal options, with the environment of when it was made; not in this test."""
    fsspec.filesystem("s3").clear_instance_cache()
    yield
    fsspec.filesystem("s3").clear_instance_cache()


@pytest.fixture
def bucket(s3: boto3.client) -> RemotePath:
    """A new, empty bucket."""
    name = f"bucket-{next(NUMBERS)}"
    s3.create_bucket(Bucket=name)
    place = as_place(f"s3://{name}")
    assert isinstance(place, RemotePath)
    return place


def objects(s3: boto3.client, place: RemotePath) -> dict[str, bytes]:
    """Every object below ``place``, asked of the server with a client that is not ours."""
    name, _, prefix = str(place).removeprefix("s3://").partition("/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=name, Prefix=prefix)
    keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
    return {key.removeprefix(prefix).lstrip("/"): s3.get_object(Bucket=name, Key=key)["Body"].read() for key in keys}


def files(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder``."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
