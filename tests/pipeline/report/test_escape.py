import pytest

from pipeline.analyses._map import _draw
from pipeline.report.escape import latex, markdown, spreadsheet
from pipeline.report.style import LIGHT, drawing, legible, png


@pytest.mark.parametrize("name", ["loss_prediction_l2", "cub200 (upstream)", "+0.157 ± 0.024", "lr=0.1", "–", "犬 🦊"])
def test_plain_names_stay_as_they_are(name):
    assert markdown(name) == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a|b", r"a\|b"),
        ("a\\|b", r"a\\\|b"),
        ("<script>&amp;", "&lt;script>&amp;amp;"),
        ("*a* `b` [c](d)", r"\*a\* \`b\` \[c\](d)"),
        ("_a_b_", r"\_a_b\_"),
        ("two\nlines\tand $x$ ~~y~~", r"two lines and \$x\$ \~\~y\~\~"),
    ],
)
def test_signs_of_markdown_are_signs(name, said):
    assert markdown(name) == said


def test_signs_of_latex_are_signs():
    assert latex("% $ ^ _ & { } #") == r"\% \$ \textasciicircum{} \_ \& \{ \} \#"
    assert latex("~ \\ | < >") == r"\textasciitilde{} \textbackslash{} \textbar{} \textless{} \textgreater{}"
    assert latex("0.6 ± 0.1\n−2") == r"0.6 $\pm$ 0.1 --2"


def test_no_cell_is_a_formula():
    formulas = ["=cmd|' /C calc'!A0", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"]
    assert [spreadsheet(name) for name in formulas] == [f"'{name}" for name in formulas]
    assert [spreadsheet(name) for name in ("a=b", "", "n01/00", "'x'")] == ["a=b", "", "n01/00", "'x'"]


@pytest.mark.filterwarnings("error")
def test_any_name_can_stand_in_a_plot():
    """A dollar began a formula, an underscore hid a line from the legend, an emoji warned."""
    names = [r"$\frac{$", "_hidden", "🦊", "long " * 40]
    values = {"x": [0, 1], "y": [0, 1], "rank": [0, 1], "label": [0, 3], "classes": names}
    with drawing(LIGHT):
        made = _draw(values, LIGHT)
        assert png(made)
    (shown,) = made.legends
    assert [text.get_text() for text in shown.get_texts()] == [legible(name) for name in names]
    assert max(len(legible(name)) for name in names) == 42
