"""Paths and URLs as people write them."""

from __future__ import annotations

import dataclasses
import pkgutil
import re
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import pipeline.backbones.sources
import pipeline.datasets
import pipeline.heads
import stages
from pipeline import places
from pipeline.config import config, parse, to_plain
from pipeline.datasets import make_dataset
from pipeline.errors import UserError
from pipeline.places import LocalPath, OutputPlace, Place, RemotePath, as_place


@config
class Config:
    anywhere: Place | None = None
    written: OutputPlace | None = None
    here: LocalPath | None = None


@pytest.mark.parametrize(
    "url", ["s3://bucket", "s3://b/x", "s3://b/x/{0..9}.tar", "https://h.org:80/a/b", "http://h/x"]
)
def test_urls_stay_as_they_are(url: str) -> None:
    place = as_place(url)
    assert isinstance(place, RemotePath)
    assert str(place).rstrip("/") == url
    assert str(place / "a" / "b.json") == f"{url}/a/b.json"
    assert (place / "a").name == "a"
    assert to_plain(parse(Config, {"anywhere": url}, "c"))["anywhere"] == str(place)
    assert as_place(str(place)) == place


@pytest.mark.parametrize("text", ["runs", "/a/b", "./a:b", "a//b", "s3", "gs/x"])
def test_what_is_no_url_is_a_path(text: str) -> None:
    assert as_place(text) == Path(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3:/bucket/x", "no whole URL"),
        ("s3://", "no whole URL"),
        ("s3:///x", "no whole URL"),
        ("hdfs://a/b", "'hdfs' is not known. Valid: s3, gs"),
        ("", "write a path or a URL"),
        (3, "write a path or a URL"),
    ],
)
def test_what_is_neither_is_refused(text: Any, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        as_place(text)


def test_a_config_says_where_a_url_does_not_do() -> None:
    with pytest.raises(UserError, match=r"c\.here: .*must be a local path, not a URL"):
        parse(Config, {"here": "s3://b/x"}, "c")
    with pytest.raises(UserError, match=r"c\.written: .*nothing can be written to https://"):
        parse(Config, {"written": "https://h/x"}, "c")
    with pytest.raises(UserError, match="must be a local path"):
        make_dataset({"kind": "image_folder", "root": "s3://b/x"})


def test_a_scheme_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=re.escape("needs the package gcsfs. Run: pip install 'hedgerow[gcs]'")):
        as_place("gs://b/x")


def _modules() -> list[Any]:
    packages = [pipeline.backbones, pipeline.backbones.sources, pipeline.datasets, pipeline.heads, stages]
    return [import_module(f"{p.__name__}.{m.name}") for p in packages for m in pkgutil.iter_modules(p.__path__)]


def test_no_config_takes_a_bare_path() -> None:
    """``Path("s3://b/x")`` is ``s3:/b/x``: every config's field of a path goes through ``as_place``."""
    holders = [value for module in _modules() for value in vars(module).values() if isinstance(value, type)]
    configs = {*holders, *(vars(holder).get("Config") for holder in holders)}
    found = [cls for cls in configs if hasattr(cls, "__pydantic_fields__") and dataclasses.is_dataclass(cls)]
    assert len(found) > 15
    bare = [
        f"{cls.__module__}.{cls.__qualname__}.{name}"
        for cls in found
        for name, hint in get_type_hints(cls, include_extras=True).items()
        if "Path" in str(hint) and "PlainValidator" not in str(hint)
    ]
    assert bare == []
