"""However many methods there are, one plot tells those apart that it draws, and they look alike in all plots."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from pipeline.report.look import Look
from pipeline.report.style import THEMES, Theme, ink_on


def result(values: dict[str, float | None], roles: dict[str, str]) -> dict[str, Any]:
    def item(name: str) -> dict[str, Any]:
        scores = {"score": {"r_auroc": {"median": values[name]}}}
        return {"name": name, "role": roles[name], "seeds": [0], "primary": "score", "scores": scores}

    return {"contenders": [item(name) for name in values]}


ROLES = (
    {"mine": "head"} | {f"h{n}": "compare" for n in range(12)} | dict.fromkeys(("classifier_entropy", "r"), "baseline")
)


def test_few_methods_keep_their_order_and_are_all_drawn() -> None:
    names = ["mine", "h1", "h0", "classifier_entropy", "r"]
    look = Look.of([result(dict.fromkeys(names, 0.5), ROLES)])
    assert (look.heads, look.drawn(names), look.left_out(names)) == (["mine", "h1", "h0"], names, "")


def test_of_many_the_head_the_best_and_the_baselines_are_drawn_each_in_a_colour_of_its_own() -> None:
    values = {name: 0.5 + n / 100 for n, name in enumerate(ROLES)}
    look = Look.of([result(values, ROLES), result({**values, "h11": None, "h3": 0.99}, ROLES)])
    drawn = look.drawn(list(ROLES))
    assert set(drawn) == {"mine", "h3", "h11", "h10", "h9", "classifier_entropy", "r"}
    assert drawn == [name for name in ROLES if name in drawn], "in the order of the tables"
    for theme in THEMES:
        assert len({look.colour(name, theme) for name in drawn}) == len(drawn)
    assert len({str(look.dash(name)) for name in look.heads[:5]}) == 5
    assert look.left_out(list(ROLES)) == " Drawn are 7 of 15 methods; the tables have all."
    assert look.drawn(list(ROLES), 20) == ["mine", "classifier_entropy"]


def test_who_is_absent_has_no_value_and_is_no_error() -> None:
    absent = {"name": "gone", "role": "compare", "seeds": []}
    whole = result(dict.fromkeys(ROLES, 0.6), ROLES)
    whole["contenders"].append(absent)
    assert "gone" in Look.of([whole]).heads


#: Machado, Oliveira and Fernandes, *A physiologically-based model for simulation of color vision deficiency*, 2009,
#: Table 1, severity 1: who lacks the long, middle or short cones.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
    "deuteranopia": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "tritanopia": np.array([[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]]),
}
XYZ = np.array([[0.4125, 0.3576, 0.1804], [0.2127, 0.7152, 0.0722], [0.0193, 0.1192, 0.9503]])


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    ratio = XYZ @ np.clip(rgb, 0, 1) / np.array([0.9505, 1, 1.0888])
    x, y, z = np.where(ratio > 0.008856, np.cbrt(ratio), 7.787 * ratio + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((float(XYZ[1] @ linear(colour)) for colour in (one, other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_text_on_a_colour_has_the_higher_contrast_of_both_inks(theme: Theme) -> None:
    for colour in ("#ffffff", "#000000", "#0072b2", "#e6a069", theme.right):
        rgb = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        chosen = ink_on(rgb, theme)
        assert contrast(chosen, colour) == max(contrast(theme.ink, colour), contrast(theme.ground, colour))


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_colours_stand_out_and_stay_apart_whatever_cones_are_missing(theme: Theme) -> None:
    drawn = (*theme.series, *theme.baselines)
    assert min(contrast(colour, theme.ground) for colour in (*drawn, theme.right, theme.wrong)) >= 3
    for name, seen in BLINDNESS.items():
        for one, other in [*combinations(drawn, 2), (theme.right, theme.wrong)]:
            apart = np.linalg.norm(lab(seen @ linear(one)) - lab(seen @ linear(other)))
            assert apart >= 12, f"{one} and {other}, {name}: ΔE of {apart:.1f}"
