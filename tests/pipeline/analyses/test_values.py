"""What analyses measure against other ways to the same numbers: scikit-learn, loops, and the main results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from pipeline.analyses import CollectionAnalysis, Comparison, advantage, chosen, histograms, make_analysis
from pipeline.analyses._records import Records
from pipeline.analyses._tables import dataset_rows, with_mean
from pipeline.analyses.base import NotApplicable
from pipeline.annotations import Annotations
from pipeline.evaluation.collection import Collection
from pipeline.evaluation.contenders import Scored
from pipeline.evaluation.scoring import SeedScores
from pipeline.metrics.aggregate import plain_numbers
from pipeline.metrics.undefined import Undefined
from pipeline.relevance import SharedLabels
from pipeline.report.look import Look
from pipeline.report.parts import Context, Figure
from pipeline.report.style import LIGHT, drawing
from tests.made_up import MadeUpChosen, cloud, collection, contenders, made_up_rows


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[Collection]:
    records = Records(tmp_path_factory.mktemp("values"), ["upstream", "unseen"], chosen([]))
    found = []
    for place, unit in enumerate(("upstream", "unseen")):
        rows = made_up_rows((90, 70)[place], 6, place)
        right_N = np.random.default_rng(place).uniform(size=len(rows.keys)) < 0.7
        columns = {
            "top1_correct": right_N,
            "task_loss": np.where(right_N, 0.1, 2.0) if place == 0 else np.nan * right_N,
        }
        methods = [*contenders(), cloud()]
        views = MadeUpChosen(rows, columns=columns)
        found.append(collection(records, unit, "upstream", rows, methods, chosen_rows=views, images=False))
    return found


def measure(name: str, one: Collection) -> Any:
    analysis = make_analysis(name)
    assert isinstance(analysis, CollectionAnalysis)
    return analysis.measure(one)


def compare(name: str, pair: list[Collection]) -> Any:
    analysis = make_analysis(name)
    assert isinstance(analysis, Comparison)
    return analysis.compare(pair)


def of(one: Collection, name: str) -> Scored:
    return next(item for item in one.present if item.name == name)


def primary(one: Collection, name: str, seed: int | None = None) -> Any:
    item = of(one, name)
    scores = item.shown if seed is None else item.seeds[seed]
    return scores.uncertainty[scores.primary]


def test_retrieval_equals_scikit_learns_neighbours(pair: list[Collection]) -> None:
    one = pair[0]
    found = measure("retrieval", one)["embeddings"]
    assert list(found) == ["backbone alone", "mc_info_nce"]
    assert found["backbone alone"]["recall_1"]["median"] == one.result["recall_at_1"]["median"]
    label_N = one.rows.label_N
    labelled = np.flatnonzero(label_N >= 0)
    for name, embedding in (
        ("backbone alone", one.rows.representation_ND),
        ("mc_info_nce", np.tanh(one.rows.representation_ND)),
    ):
        rows = embedding[labelled].astype(float)
        near = NearestNeighbors(n_neighbors=6, metric="cosine").fit(rows).kneighbors(rows)[1][:, 1:]
        right = label_N[labelled][near] == label_N[labelled][:, None]
        counted = np.array([(label_N[labelled] == label).sum() > 1 for label in label_N[labelled]])
        assert found[name]["recall_5"]["median"] == pytest.approx(right[counted].any(axis=1).mean(), abs=1e-9)
        seeds = 1 if name == "backbone alone" else 2
        assert len(found[name]["recall_5"]["values"]) == seeds


def test_r_auroc_at_k_is_the_main_one_at_1_and_scikit_learns_where_r_at_k_judges(pair: list[Collection]) -> None:
    one = pair[0]
    found = measure("retrieval", one)
    assert list(found["scores"]) == [item.name for item in one.present]
    for item in one.result["contenders"]:
        main = item["scores"][item["primary"]]["r_auroc"]
        assert found["scores"][item["name"]]["r_auroc_1"] == main
    label_N = one.rows.label_N
    for name, embedding in (
        ("loss_prediction", one.rows.representation_ND),
        ("mc_info_nce", np.tanh(one.rows.representation_ND)),
    ):
        near = NearestNeighbors(n_neighbors=len(label_N), metric="cosine").fit(embedding.astype(float))
        order = near.kneighbors(embedding.astype(float))[1]
        wrong = {}
        for row, ranked in enumerate(order):
            others = [other for other in ranked if other != row and label_N[other] >= 0]
            if label_N[row] >= 0 and any(label_N[other] == label_N[row] for other in others):
                wrong[row] = all(label_N[other] != label_N[row] for other in others[:3])
        for seed, value in enumerate(found["scores"][name]["r_auroc_3"]["values"]):
            said = primary(one, name, seed)[list(wrong)]
            assert value == pytest.approx(roc_auc_score(list(wrong.values()), said), abs=1e-9)
    assert found["counted"] == len(wrong)


def test_clusters_that_are_the_classes(tmp_path: Path) -> None:
    rows = made_up_rows(60, 4, 0)
    rows.representation_ND[:] = np.eye(12, dtype=np.float32)[np.maximum(rows.label_N, 0)]
    one = collection(Records(tmp_path, ["x"], []), "x", "downstream", rows, contenders(), images=False)
    found = measure("clusters", one)
    assert (found["rows"], found["classes"]) == (59, 5)
    assert found["numbers"]["backbone alone"]["nmi"]["median"] == pytest.approx(1)
    assert list(found["numbers"]) == ["backbone alone"]


def test_clusters_of_an_embedding_of_its_own_at_each_seed(pair: list[Collection]) -> None:
    found = measure("clusters", pair[0])["numbers"]
    assert {name: len(one["nmi"]["values"]) for name, one in found.items()} == {"backbone alone": 1, "mc_info_nce": 2}


def test_selective_numbers_are_the_main_ones_and_those_of_a_loop(pair: list[Collection]) -> None:
    one = pair[0]
    found = measure("selective", one)
    for item in one.result["contenders"]:
        numbers, mine = item["scores"][item["primary"]], found["numbers"][item["name"]]
        for key in ("aurc", "e_aurc", "augrc"):
            assert mine[key] == numbers[key]
    scores = of(one, "inverse_norm").shown
    uncertainty, wrong = scores.judged()
    order = np.argsort(uncertainty)  # no ties here
    accuracy = 1 - np.cumsum(wrong[order]) / np.arange(1, len(order) + 1)
    mine = found["numbers"]["inverse_norm"]
    assert mine["accuracy_0.5"]["median"] == pytest.approx(accuracy[int(np.ceil(len(order) / 2)) - 1], abs=1e-12)
    enough = np.flatnonzero(accuracy >= 0.95)
    if len(enough):
        assert mine["abstention_0.95"]["median"] == pytest.approx(1 - (enough[-1] + 1) / len(order), abs=1e-12)
    else:
        assert mine["abstention_0.95"]["undefined"] == "no share of rows has an accuracy of 0.95"
    assert found["curves"]["inverse_norm"]["rejected"][0] == 0


def test_known_classes_are_judged_by_the_classifiers_guesses(pair: list[Collection]) -> None:
    from pipeline.analyses.base import NotApplicable

    one = pair[0]
    found = measure("known_classes", one)
    right_N = one.chosen.column("top1_correct", "center")
    assert found["accuracy"] == pytest.approx(right_N.mean())
    values = found["numbers"]["loss_prediction"]["auroc"]["values"]
    expected = [roc_auc_score(~right_N, primary(one, "loss_prediction", seed)) for seed in range(3)]
    assert values == pytest.approx(expected, abs=1e-12)
    with pytest.raises(NotApplicable, match="no classifier knows these classes"):
        measure("known_classes", pair[1])


def test_strangers_are_told_as_by_scikit_learn(pair: list[Collection]) -> None:
    found = compare("ood", pair)
    assert list(found) == ["unseen"]
    for name in ("loss_prediction", "inverse_norm"):
        seeds = range(len(of(pair[0], name).seeds))
        expected = [
            roc_auc_score(
                np.repeat([False, True], [90, 70]), np.concatenate([primary(one, name, seed) for one in pair])
            )
            for seed in seeds
        ]
        assert found["unseen"][name]["auroc"]["values"] == pytest.approx(expected, abs=1e-12)


def test_a_mixture_seeks_neighbours_among_both_and_keeps_classes_apart(pair: list[Collection]) -> None:
    found = compare("mixture", pair)["unseen"]
    assert found["rows"] == 69, "all labelled rows of the smaller one"
    rows, labels, uncertainty = [], [], []
    for place, one in enumerate(pair):
        labelled = np.flatnonzero(one.rows.label_N >= 0)
        chosen_rows = labelled[np.linspace(0, len(labelled) - 1, 69).astype(int)]
        rows.append(one.rows.representation_ND[chosen_rows].astype(float))
        labels.append(one.rows.label_N[chosen_rows] + 100 * place)
        uncertainty.append([primary(one, "loss_prediction", seed)[chosen_rows] for seed in range(3)])
    rows, labels = np.concatenate(rows), np.concatenate(labels)
    near = NearestNeighbors(n_neighbors=2, metric="cosine").fit(rows).kneighbors(rows)[1][:, 1]
    counted = np.array([(labels == label).sum() > 1 for label in labels])
    wrong = labels[near] != labels
    numbers = found["numbers"]["loss_prediction"]
    assert numbers["recall"]["values"] == pytest.approx([1 - wrong[counted].mean()] * 3, abs=1e-12)
    of_seeds = np.concatenate(uncertainty, axis=1)
    expected = [roc_auc_score(wrong[counted], said[counted]) for said in of_seeds]
    assert numbers["r_auroc"]["values"] == pytest.approx(expected, abs=1e-12)
    assert len(set(expected)) == 3
    assert len(found["numbers"]["inverse_norm"]["r_auroc"]["values"]) == 1, "a baseline has one seed"


def test_a_mixture_leaves_out_what_a_relation_judges(pair: list[Collection]) -> None:
    """Labels of places or of several-label images are no answer to what is relevant, so no neighbour of theirs is."""

    def related(one: Collection) -> Collection:
        relation = SharedLabels.from_lists([[0]] * len(one.rows.keys))
        known = Annotations(keys=tuple(one.rows.keys), relevance=relation)
        return Collection(one.result, replace(one.sources, annotations=lambda: known))

    upstream, unseen = pair
    assert compare("mixture", [upstream, unseen, related(unseen)]) == compare("mixture", pair)
    for collections in ([upstream, related(unseen)], [related(upstream), unseen], [related(upstream), related(unseen)]):
        with pytest.raises(NotApplicable, match="nothing of images of two datasets"):
            compare("mixture", collections)


def test_the_advantage_is_that_of_the_main_numbers_and_its_interval_is_that_of_a_loop(
    pair: list[Collection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advantage, "DRAWS", 40)
    one = pair[0]
    found = measure("advantage", one)
    assert "classifier_entropy" not in found
    theirs, wrong = of(one, "classifier_entropy").shown.judged()
    for name in ("loss_prediction", "random", "inverse_norm"):
        seeds = [scores.judged()[0] for scores in of(one, name).seeds.values()]
        expected = [roc_auc_score(wrong, said) - roc_auc_score(wrong, theirs) for said in seeds]
        assert found[name]["advantage"]["values"] == pytest.approx(expected, abs=1e-12)
        draws, medians = np.random.Generator(np.random.Philox(0)), []
        for _ in range(40):
            rows = draws.integers(0, len(wrong), len(wrong))
            if 0 < wrong[rows].sum() < len(wrong):
                entropy = roc_auc_score(wrong[rows], theirs[rows])
                medians.append(np.median([roc_auc_score(wrong[rows], said[rows]) - entropy for said in seeds]))
        ends = [found[name]["low"], found[name]["high"]]
        assert ends == pytest.approx(list(np.quantile(medians, [0.025, 0.975])), abs=1e-12)


def test_the_entropy_is_resampled_once_for_all(pair: list[Collection], monkeypatch: pytest.MonkeyPatch) -> None:
    """It, and the draws, were made anew for each contender."""
    asked: dict[int, int] = {}
    metric = advantage._metric

    def counting(scores: SeedScores, *further: Any) -> Any:
        of_rows = metric(scores, *further)

        def ask(row_D: Any) -> Any:
            asked[id(scores)] = asked.get(id(scores), 0) + 1
            return of_rows(row_D)

        return ask

    monkeypatch.setattr(advantage, "DRAWS", 7)
    monkeypatch.setattr(advantage, "_metric", counting)
    measure("advantage", pair[0])
    assert len(asked) >= 4
    assert set(asked.values()) == {1 + 7}, "all rows, and each draw"


def test_samples_that_all_agree_are_confident(pair: list[Collection], monkeypatch: pytest.MonkeyPatch) -> None:
    one = pair[0]
    found = measure("sampling", one)
    assert list(found["numbers"]) == ["mc_info_nce"]
    errors = found["numbers"]["mc_info_nce"]["ece"]["values"]
    assert len(errors) == 2, "at each seed"
    assert all(0 <= error <= 1 for error in errors)
    monkeypatch.setattr("tests.made_up.Cloud.sample", lambda self, x, count, generator: x.tanh().expand(count, -1, -1))
    sure = measure("sampling", one)
    recall = measure("retrieval", one)["embeddings"]["mc_info_nce"]["recall_1"]["median"]
    assert sure["curves"]["mc_info_nce"]["confidence"] == [1.0]
    assert sure["numbers"]["mc_info_nce"]["ece"]["median"] == pytest.approx(1 - recall, abs=0.03), "lone rows differ"


def test_agreement_orders_methods_by_what_they_share(pair: list[Collection]) -> None:
    found = measure("agreement", pair[0])["pairs"]
    assert found["loss_prediction"]["loss_prediction"]["values"] == pytest.approx([1, 1, 1])
    ours = found["loss_prediction"]
    assert ours["loss_prediction_l2"]["median"] > ours["random"]["median"]


def test_agreement_is_scipys_at_every_seed_and_one_seed_stands_beside_all(pair: list[Collection]) -> None:
    one = pair[0]
    found = measure("agreement", one)["pairs"]
    names = [item.name for item in one.present]
    assert [list(of) for of in found.values()] == [names[place:] for place in range(len(names))]
    for left, right, seeds in (
        ("loss_prediction", "random", [(0, 0), (1, 1), (2, 2)]),
        ("loss_prediction", "inverse_norm", [(0, 0), (1, 0), (2, 0)]),
        ("loss_prediction", "mc_info_nce", [(0, 0), (1, 1)]),
        ("classifier_entropy", "inverse_norm", [(0, 0)]),
    ):
        expected = [spearmanr(primary(one, left, a), primary(one, right, b)).statistic for a, b in seeds]
        pairs = found[left] if right in found[left] else found[right]
        assert pairs[right if right in found[left] else left]["values"] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("value", [0.0, 3.0, 1e-300, -1e20, 3e38])
def test_the_histogram_of_one_value_has_one_bin_with_all_of_it(value: float) -> None:
    """numpy widens by ½, in which 10²⁰ has no bins."""
    wrong_C = np.arange(6) < 2
    found = histograms._counts(np.full(6, value), wrong_C)
    assert (sorted(found["right"])[-2:], sorted(found["wrong"])[-2:]) == ([0, 4], [0, 2])
    assert np.all(np.diff(found["edges"]) > 0)
    uncertainty_C = np.array([0.0, 1, 2, 3, 4, 5])
    edges, count = np.array(histograms._counts(uncertainty_C, wrong_C)["edges"]), histograms.BINS
    assert edges.tolist() == np.histogram_bin_edges(uncertainty_C, bins=count).tolist()


def test_the_mean_of_collections_is_taken_seed_by_seed_of_those_that_all_have() -> None:
    def numbers(*values: float) -> dict[str, Any]:
        return plain_numbers(values or [Undefined("why")])

    of = {
        "a": {"x": {"m": numbers(1, 2, 9), "n": numbers(0)}, "y": {"m": numbers(), "n": numbers(1)}, "z": {}},
        "b": {"x": {"m": numbers(3, 6, 1), "n": numbers(1)}, "y": {"m": numbers(5), "n": numbers(2)}},
    }
    found = with_mean(of)
    assert list(found) == ["a", "b", "mean of the 2"]
    mean = found["mean of the 2"]
    assert list(mean) == ["x", "y"]
    assert mean["x"]["m"] == {"median": 4, "distance": 2, "values": [2, 4, 5], "undefined": None}
    assert (mean["x"]["n"]["median"], mean["y"]["n"]["median"]) == (0.5, 1.5)
    assert mean["y"]["m"] == {"median": None, "distance": None, "values": [], "undefined": "why"}
    assert with_mean({"a": of["a"]}) == {"a": of["a"]}


def test_the_best_is_bold_only_where_there_is_something_to_choose_from() -> None:
    columns: Any = {"M": ("m", "low")}
    for values, bold in (((2, 1, 3), [False, True, False]), ((1, 1, 1), [False] * 3), ((1, 1, 2), [True, True, False])):
        numbers = {name: {"m": plain_numbers([value])} for name, value in zip("abc", values, strict=True)}
        rows = dataset_rows({"": numbers}, columns)
        assert [row[2].strong for row in rows] == bold


def test_percents_stand_where_they_say(pair: list[Collection]) -> None:
    """Ticks at 87.5 % and 92.5 % were called 88 % and 92 %."""
    one = pair[0]
    curve = {"rejected": [0, 0.5, 0.9], "accuracy": [0.82, 0.9, 1]}
    context = Context(results=[one.result], look=Look.of([one.result]))
    values = {"recall_at_1": 0.82, "curves": {"loss_prediction": curve}}
    (part,) = (part for part in make_analysis("rejection").show(values, context) if isinstance(part, Figure))
    with drawing(LIGHT):
        drawn = part.draw(LIGHT)
        drawn.draw_without_rendering()
    axis = drawn.axes[0].yaxis
    said = [float(label.get_text().rstrip("%")) for label in axis.get_ticklabels()]
    assert said == pytest.approx([100 * place for place in axis.get_ticklocs()], abs=0.05)
