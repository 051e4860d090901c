"""Names as they are, in files that give some signs a meaning: Markdown, LaTeX, and CSV that a spreadsheet opens.

A name is whatever a class, a dataset, a head or a file is called. In HTML the templates escape all of it themselves.
"""

from __future__ import annotations

import re

_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "−": "--",
    "·": r"$\cdot$",
    "–": "--",
}
_MARKDOWN = re.compile(r"[\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word says nothing
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def markdown(text: str) -> str:
    """Text for a cell of a table or a line, on one line; plain names stay as they are."""
    return _MARKDOWN.sub(r"\\\g<0>", _one_line(text)).replace("&", "&amp;").replace("<", "&lt;")


def latex(text: str) -> str:
    """Text for a cell of a table, on one line."""
    return "".join(_LATEX.get(sign, sign) for sign in _one_line(text))


def spreadsheet(text: str) -> str:
    """Text for a cell of a CSV file: what a spreadsheet would take for a formula gets an apostrophe in front.

    It is what such programs show as text (OWASP, *CSV injection*); whoever reads the file otherwise takes it away.
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def _one_line(text: str) -> str:
    return " ".join(text.split()) if re.search(r"[^\S ]", text) else text
