"""The settings that are read out of a method's file are those of the method, and cost no package that computes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from cluster.executors import executor_class
from pipeline.backbones import network_class
from pipeline.caching.settings import CacheSettings
from pipeline.config import parse
from pipeline.datasets import dataset_class
from pipeline.discovery import names
from pipeline.errors import UserError
from pipeline.heads import head_class
from pipeline.settings import kind_of, parse_settings, read_settings

FAMILIES = {
    "pipeline.heads": head_class,
    "pipeline.datasets": dataset_class,
    "pipeline.backbones.sources": lambda name: network_class({"source": name}),
    "cluster.executors": executor_class,
}
METHODS = [(package, name) for package in FAMILIES for name in names(package)]
SLOW = ("torch", "zarr", "timm", "torchvision", "scipy", "sklearn", "matplotlib", "onnx", "submitit")


@pytest.fixture(scope="module")
def read() -> dict[str, Any]:
    """Method → the schema of its settings, in a process that imports nothing else of it."""
    script = (
        "import json, sys\n"
        "from pydantic import TypeAdapter\n"
        "from pipeline.settings import read_settings\n"
        f"classes = {{method: read_settings(method) for method in {['.'.join(method) for method in METHODS]!r}}}\n"
        "print(json.dumps({name: cls and TypeAdapter(cls).json_schema() for name, cls in classes.items()}))\n"
        f"sys.exit(' '.join({set(SLOW)!r} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("package", "name"), METHODS)
def test_they_are_those_of_the_method(package: str, name: str, read: dict[str, Any]) -> None:
    assert read[f"{package}.{name}"] == TypeAdapter(FAMILIES[package](name).Config).json_schema()


FILE = """
from __future__ import annotations
from typing import Annotated
{imports}
from pydantic import Field, field_validator
from pipeline.config import config
from made._beside import MORE, TWO as TWO, Network

LEAST = 3
Many = Annotated[int, Field(ge=LEAST)]


def twice(value):
    return TWO * value


def unused():
    return missing


class Method:
    @config
    class Config:
        many: Many = 5
        doubled: int = 1

        @field_validator("doubled")
        @classmethod
        def _double(cls, value: Method) -> int:
            return twice(value)

    network = {network}
"""


@pytest.fixture
def method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a method called ``made.method``, to be written."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "__init__.py").touch()
    (tmp_path / "made" / "_beside.py").write_text("import nowhere\nONE = 1\nTWO = ONE + 1\nMORE = nowhere.more\n")
    monkeypatch.syspath_prepend(tmp_path)
    read_settings.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "made"]:
        del sys.modules[name]
    return tmp_path / "made" / "method.py"


def never() -> type[Any]:
    raise AssertionError("the file is not to be imported")


def test_only_what_they_need_is_run(method: Path) -> None:
    method.write_text(FILE.format(imports="import nowhere", network="nowhere.Network()"), encoding="utf-8")
    settings = parse_settings({"doubled": 4}, "method", "made.method", never)
    assert (settings.many, settings.doubled) == (5, 8)
    with pytest.raises(UserError, match=r"method\.many: .*greater than or equal to 3"):
        parse_settings({"many": 2}, "method", "made.method", never)
    with pytest.raises(UserError, match=r"method\.amny: unknown key\. Did you mean 'many'"):
        parse_settings({"amny": 3}, "method", "made.method", never)


def test_where_there_are_two_all_is_imported(method: Path) -> None:
    method.write_text(
        FILE.format(imports="", network="1\n\n\nclass Other:\n    Config = Method.Config"), encoding="utf-8"
    )
    assert read_settings("made.method") is None


def test_what_is_imported_is_not_read_again(method: Path) -> None:
    method.write_text(FILE.format(imports="", network=None), encoding="utf-8")
    method.with_name("_beside.py").write_text("TWO, MORE, Network = 2, 3, None")
    from made.method import Method  # type: ignore[import-not-found]

    assert read_settings("made.method") is None
    assert isinstance(parse_settings({}, "method", "made.method", lambda: Method), Method.Config)


def test_a_method_has_a_name() -> None:
    assert kind_of({"kind": "random", "a": 1}, "head", "pipeline.heads", "head") == ("random", {"a": 1})
    with pytest.raises(UserError, match=r"cluster\.kind: needs the name of an executor\. Valid: local, slurm"):
        kind_of({}, "cluster", "cluster.executors", "executor")


def test_what_is_neither_of_two_things_is_one_complaint():
    with pytest.raises(UserError) as raised:
        parse(CacheSettings, {"batch_size": "many", "augmentation": {"scale": [1], "ratio": "x"}}, "cache")
    lines = str(raised.value).splitlines()
    said = [line for line in lines if "batch_size" in line]
    assert len(said) == 1
    assert said[0].startswith("cache.batch_size: Input should be a valid integer, unable")
    assert said[0].endswith("; or input should be 'auto' (got 'many')")
    assert [line.split(":")[0] for line in lines if line not in said] == [
        "cache.augmentation.scale.1",
        "cache.augmentation.ratio",
    ]
