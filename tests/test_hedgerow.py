"""The face, as a stranger meets it: another process, another folder, nothing but the bundle."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hedgerow
from pipeline.errors import UserError
from pipeline.release.bundle import CONFIG, WEIGHTS
from pipeline.representation_store import RepresentationStore, StoreLayout, UnitInfo, UnitRows
from tests.pipeline.release.conftest import images, one_thread, release  # noqa: F401 (fixtures)

ROOT = Path(__file__).parent.parent

STRANGER = """
import json, sys
import hedgerow
assert "torch" not in sys.modules, "import hedgerow must be quick"
import torch
torch.set_num_threads(1)

def no_pickle(event, arguments):
    assert event != "pickle.find_class", f"a pickle names {arguments}"

sys.addaudithook(no_pickle)
model = hedgerow.load(sys.argv[1])
embedding, uncertainty = model(sys.argv[2:])
assert not {name.split(".")[0] for name in sys.modules} & {"stages", "cluster", "hydra", "submitit"}
print(json.dumps([embedding.tolist(), uncertainty.tolist(), repr(model)]))
"""


def test_it_imports_pipeline_and_nothing_else_of_ours():
    tree = ast.parse((ROOT / "hedgerow.py").read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    roots = {str(name).split(".")[0] for name in imported}
    assert roots & {path.parent.name for path in ROOT.glob("*/__init__.py")} == {"pipeline"}


def as_a_stranger(folder: Path, script: str, *arguments: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fresh_process_reproduces_it_without_pickle(release, images, tmp_path):  # noqa: F811
    bundle = release()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = bundle.rename(elsewhere / "given-to-a-friend")
    model = hedgerow.load(moved)
    embedding, uncertainty = model(images)
    found = json.loads(as_a_stranger(elsewhere, STRANGER, moved, *images))
    assert found == [embedding.tolist(), uncertainty.tolist(), repr(model)]


def test_the_hook_would_see_a_pickle(tmp_path):
    hook = STRANGER[STRANGER.index("def no_pickle") : STRANGER.index("model =")]
    with pytest.raises(AssertionError, match="a pickle names"):
        as_a_stranger(tmp_path, f"import pickle, sys\n{hook}\npickle.loads(pickle.dumps(RuntimeError()))")


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG])
def test_a_damaged_bundle_is_refused_by_name(release, name):  # noqa: F811
    bundle = release()
    data = bytearray((bundle / name).read_bytes())
    data[len(data) // 2] ^= 1
    (bundle / name).write_bytes(bytes(data))
    with pytest.raises(UserError, match=name):
        hedgerow.load(bundle)


def test_what_is_no_bundle_is_refused(tmp_path):
    with pytest.raises(UserError, match="no released model"):
        hedgerow.load(str(tmp_path))


def test_the_same_model_gives_the_same_bytes(release, tmp_path):  # noqa: F811
    first = {path.name: path.read_bytes() for path in release().iterdir()}
    second = {path.name: path.read_bytes() for path in release().iterdir()}
    assert first == second


def test_a_store_is_opened_by_its_own_folder_and_by_the_run_folder(tmp_path):
    layout = StoreLayout(
        units=(UnitInfo(name="0.tar"),),
        rows=4,
        views=("center",),
        width=3,
        view_params=("p",),
        key_bytes=4,
        chunk_rows=4,
    )
    run = {"class_names": ["a"], "backbone": {}}
    store = RepresentationStore.create(tmp_path / "store", layout, run)
    rows = UnitRows(
        embedding_RVD=np.arange(6, dtype=np.float32).reshape(2, 1, 3),
        view_params_RVP=np.zeros((2, 1, 1), np.float32),
        label_R=np.array([0, -1], np.int32),
        keys=["x", "y"],
        scores={},
    )
    store.write_unit(0, rows)
    for path in (tmp_path, str(tmp_path / "store")):
        opened = hedgerow.open_store(path)
        assert opened.keys() == ["x", "y"]
        assert opened.representations(view=0).tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(UserError, match="no representation store"):
        hedgerow.open_store(tmp_path / "absent")
