import copy
import re

import pytest

from pipeline.backbones import parse_backbone
from pipeline.config import to_plain
from pipeline.evaluation import Scorer, collection_results, score_all
from pipeline.progress import Silent
from pipeline.release.card import kept_results, model_card
from tests.made_up import contenders, made_up_rows


@pytest.fixture(scope="module")
def results():
    found = []
    for name, role in (("seen", "upstream"), ("unseen", "downstream")):
        scorer = Scorer(made_up_rows(200, 8, seed=len(name)))
        about = {"title": f"The {name} ones", "source": "here", "licence": "mit", "citation": ""}
        scored = score_all(scorer, contenders(), Silent())
        found.append({"dataset": name, "role": role, "about": about, **collection_results(scorer, scored)})
    return found


@pytest.fixture
def config(results):
    return {
        "title": "A title",
        "embedding_width": 64,
        "keeps_representation": True,
        "digest": "d" * 64,
        "data": {"title": "Pictures", "source": "there", "licence": "cc0", "citation": "", "images": 100, "classes": 9},
        "head": {"head": {"kind": "loss_prediction", "margin": 0.1}, "seed": 2, "training": {"steps": 9}},
        "backbone": {
            "name": "a_vit",
            "values": {"source": "timm", "weights": "package", "package": "vit-weights", "path": None, "seed": 0},
            "weights_sha256": "w" * 64,
            "preprocessing": {"size": 224},
            "licence": "mit",
            "licence_said_by": "timm",
            "carried": False,
        },
        "results": kept_results(results),
        "self_check": {
            "images": 16,
            "dataset": "unseen",
            "tolerance": 1e-4,
            "rounding": 2e-4,
            "embedding_identical": True,
        },
    }


def test_it_says_what_where_from_and_how_to_load(config):
    card = model_card(config, folder_name="my-model")
    for part in (
        "# A title",
        'model = hedgerow.load("my-model")',
        "(B, 64)",
        "seed 2 (margin 0.1)",
        "pip install vit-weights",
        "d" * 64,
        "w" * 64,
        "100 images of 9 classes: **Pictures**",
        "**ranks**",
        "not a probability",
        "Pretrained Visual Uncertainties",
        "run on 16 images of unseen",
    ):
        assert part in card
    assert "None" not in card
    assert not re.search(r"\n{3,}", card)
    assert card.endswith("```\n")


def test_another_method_has_another_article_and_a_baseline_was_not_trained(config):
    head = {"head": {"kind": "random"}, "seed": 0, "training": {}}
    card = model_card({**config, "head": head}, folder_name="model")
    assert "Pretrained" not in card
    assert "the article of the method `random`, which `docs/methods/random.md` of Hedgerow names." in card
    assert "takes no training; what it takes from data is of 100 images" in card
    assert "was trained on 100" not in card


def test_the_entropy_baseline_stands_beside_the_head_and_other_heads_do_not(config, results):
    card = model_card(config, folder_name="model")
    unseen = [line for line in card.splitlines() if line.startswith("| unseen")]
    assert len(unseen) == 4
    for name in ("loss_prediction", "classifier_entropy", "inverse_norm", "random"):
        assert sum(f"| {name} |" in line for line in unseen) == 1
    assert "loss_prediction_l2" not in card
    head = next(item for item in results[1]["contenders"] if item["role"] == "head")
    shown = f"{head['scores']['score']['r_auroc']['median']:.3f}"
    assert any(shown in line for line in unseen if "loss_prediction" in line)


def test_only_downstream_counts_as_zero_shot(config):
    card = model_card(config, folder_name="model")
    sentence = next(line for line in card.splitlines() if line.startswith("Zero-shot"))
    assert "**unseen** (The unseen ones" in sentence
    assert "seen ones" not in sentence.replace("unseen ones", "")


def test_what_was_not_evaluated_is_said(config):
    bare = {**config, "results": [], "self_check": {"images": 0}}
    card = model_card(bare, folder_name="model")
    assert "It was not evaluated." in card
    assert "no evaluated images to compare with" in card
    upstream = {**config, "results": config["results"][:1]}
    assert "not evaluated on a downstream dataset" in model_card(upstream, folder_name="model")


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"weights": "pretrained"}, "downloaded by timm"),
        ({"weights": "ours"}, "comes with Hedgerow"),
        ({"weights": "random", "seed": 7}, "at random from seed 7"),
        ({"weights": "file", "path": "vit.npz"}, "backbone_weights=<file>"),
    ],
)
def test_it_says_how_the_backbone_is_had(config, weights, said):
    changed = copy.deepcopy(config)
    changed["backbone"]["values"].update(package=None, **weights)
    assert said in model_card(changed, folder_name="model")
    more = ', backbone_weights="vit.npz"' if "path" in weights else ""
    assert f'\nmodel = hedgerow.load("model"{more})\n' in model_card(changed, folder_name="model")
    changed["backbone"]["carried"] = True
    assert "carried in this bundle" in model_card(changed, folder_name="model")
    assert '\nmodel = hedgerow.load("model")\n' in model_card(changed, folder_name="model")


FACTS = {"size": 32, "mean": [0.5] * 3, "std": [0.5] * 3, "crop": 1.0, "interpolation": "bicubic"}


@pytest.mark.parametrize(
    ("backbone", "said"),
    [
        ({"source": "torchvision", "model": "resnet18"}, "downloaded by torchvision"),
        ({"source": "torchvision", "model": "resnet18", "weights": "random", "seed": 7}, "at random from seed 7"),
        ({"source": "onnx", "path": "/here/net.onnx", **FACTS}, "not here: get `/here/net.onnx`"),
        ({"source": "torchscript", "path": "/here/net.pt", **FACTS}, "not here: get `/here/net.pt`"),
    ],
)
def test_it_says_so_of_backbones_of_every_source(config, backbone, said):
    """Each source has settings of its own: no value of another is asked for."""
    config["backbone"]["values"] = to_plain(parse_backbone(backbone))
    assert said in model_card(config, folder_name="model")


def test_a_source_of_ones_own_brings_its_weights(config):
    """As docs/backbones.md says: one new file, with whatever settings it takes."""
    config["backbone"]["values"] = {"source": "colours", "grid": 4}
    card = model_card(config, folder_name="model")
    assert "| weights of the backbone | come with the backbone source `colours`;" in card
    assert '\nmodel = hedgerow.load("model")\n' in card


def test_a_file_that_is_read_with_pickle_is_said_to_be(config):
    assert "reads no pickle.\n" in model_card(config, folder_name="model")
    backbone = {"source": "export", "path": "net.pt2", "trusted": True, **FACTS}
    config["backbone"]["values"] = to_plain(parse_backbone(backbone))
    card = model_card(config, folder_name="model")
    assert '\nmodel = hedgerow.load("model", backbone_weights="net.pt2", trusted=True)\n' in card
    assert "reads no pickle but one: torch reads the file of\nthe backbone with it" in card
