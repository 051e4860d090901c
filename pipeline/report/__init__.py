"""The report of an evaluation: tables, plots, thumbnails, and one HTML file that needs nothing beside it."""

from pipeline.report.build import About, write_report
from pipeline.report.table import as_markdown, as_text

__all__ = ["About", "as_markdown", "as_text", "write_report"]
