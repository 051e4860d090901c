"""Scoring heads on a cached collection: rows → embeddings, neighbours, uncertainties → plain results."""

from pipeline.evaluation.contenders import Contender, Scored, score_all
from pipeline.evaluation.results import collection_results
from pipeline.evaluation.rows import Rows, read_rows
from pipeline.evaluation.scoring import Scorer, SeedScores
from pipeline.evaluation.table import row_table, write_table

__all__ = [
    "Contender",
    "Rows",
    "Scored",
    "Scorer",
    "SeedScores",
    "collection_results",
    "read_rows",
    "row_table",
    "score_all",
    "write_table",
]
