"""The pages of methods are those that the heads' files say, and say what a reader looks for."""

from __future__ import annotations

import pytest

from pipeline.heads import head_names
from tests.golden.methods import index, page
from tests.golden.regenerate import METHODS


def test_every_method_has_its_page() -> None:
    wanted = ["README.md", *(f"{name}.md" for name in head_names())]
    assert sorted(path.name for path in METHODS.glob("*")) == sorted(wanted)
    assert (METHODS / "README.md").read_text(encoding="utf-8") == index(), "make golden"


@pytest.mark.parametrize("name", head_names())
def test_a_page_is_current(name: str) -> None:
    text = (METHODS / f"{name}.md").read_text(encoding="utf-8")
    assert page(name) == text, "the head's file has changed: make golden, and read the difference"
    assert "## Cost, and when to take it" in text, "its docstring wants a paragraph `Cost:` that says when to take it"
