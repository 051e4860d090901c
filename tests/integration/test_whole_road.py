"""Images → store → head → scores → a released model, by one command; what came out is true and whole."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.files import read_json
from pipeline.images.tars import TarSample, read_tar
from tests.integration.conftest import ROOT, finish, in_small, one

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("whole_road")]

FRESH = """
import sys
import numpy as np
from PIL import Image
import hedgerow
model = hedgerow.load(sys.argv[1])
embedding, uncertainty = model([Image.open(path) for path in sys.argv[3:]])
np.savez(sys.argv[2], embedding=embedding.numpy(), uncertainty=uncertainty.numpy())
"""


def downstream(calm: Path) -> dict[str, Any]:
    (result,) = [r for r in read_json(one(calm, "evaluate") / "results.json")["results"] if r["role"] == "downstream"]
    return result


def test_it_says_what_came_out_and_how_to_load_it(calm: Path) -> None:
    output = (calm / "output.txt").read_text()
    for word in ("R@1", "R-AUROC", "loss_prediction", "classifier_entropy", "inverse_norm", "random", "report.html"):
        assert word in output
    assert "hedgerow.load(" in output
    assert (one(calm, "evaluate") / "report.html").stat().st_size > 10_000


def test_the_released_model_gives_the_stored_uncertainties_in_a_fresh_process(calm: Path, tmp_path: Path) -> None:
    table = np.load(one(calm, "evaluate") / "rows" / "digit_pairs_unseen.npz")
    name = "uncertainty/loss_prediction/0/predicted_loss"
    keys = [key.decode() for key in table["key"]]
    samples = {}
    for tar in sorted(calm.glob("pack-*/tars/*.tar")):
        samples |= {sample.key: sample.data for sample in read_tar(tar) if isinstance(sample, TarSample)}
    chosen = keys[:8]
    paths = []
    for place, key in enumerate(chosen):
        paths.append(tmp_path / f"{place}.png")
        paths[-1].write_bytes(io.BytesIO(samples[key]).getvalue())
    (bundle,) = one(calm, "release").glob("*/model.safetensors")
    out = tmp_path / "out.npz"
    command = [sys.executable, "-c", FRESH, str(bundle.parent), str(out), *map(str, paths)]
    subprocess.run(command, check=True, cwd=ROOT)
    got = np.load(out)
    rows = [keys.index(key) for key in chosen]
    np.testing.assert_allclose(got["uncertainty"], table[name][rows], rtol=2e-3)


def test_the_head_does_not_interfere(calm: Path) -> None:
    """R@1 and embeddings with a head are those of the backbone alone; a head that changed them would be seen."""
    for contender in downstream(calm)["contenders"]:
        assert contender["non_interference"] == {"embedding_identical": True, "recall_at_1_identical": True}
        assert set(contender["recall_at_1"]["values"]) == set(downstream(calm)["recall_at_1"]["values"])


def test_the_same_command_again_has_nothing_to_do(calm: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in calm.rglob("*.safetensors")}
    output = finish(calm, "stage=all", "evaluate.compare=[]")
    for stage in ("pack", "cache", "probe", "train_head", "evaluate", "release"):
        assert f"{stage}: nothing to do" in output
    assert {path: path.stat().st_mtime_ns for path in calm.rglob("*.safetensors")} == before


def test_how_far_it_is_is_said_without_the_packages_that_compute(calm: Path) -> None:
    script = (
        "import sys; from cluster.submit import main; code = main(sys.argv[1:])\n"
        "sys.exit(' '.join({'torch', 'zarr', 'timm', 'submitit'} & set(sys.modules)) or code)"
    )
    command = [sys.executable, "-c", script, *in_small(calm, ["status", "evaluate.compare=[]"])]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (said.returncode, said.stderr) == (0, "")
    units = [line.split()[1:4:2] for line in said.stdout.splitlines()[1:]]
    assert units == [["6", "6"], ["6", "6"], ["2", "2"], ["1", "1"], ["2", "2"], ["1", "1"]]


def test_a_flipped_bit_is_found_and_the_same_command_repairs_it(calm: Path) -> None:
    (shard,) = one(calm, "cache").glob("store/embedding/c/3/0/0/0")
    good = shard.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 2] ^= 8
    shard.write_bytes(bytes(bad))
    output = finish(calm, "verify", "stage=cache", code=1)
    assert "unit 000003" in output
    assert "submit stage=cache" in output
    finish(calm, "stage=cache")
    assert shard.read_bytes() == good
    assert "all is well" in finish(calm, "verify", "stage=cache")
