"""Several evaluations side by side: one table of heads and backbones over datasets, and its plots."""

from pipeline.leaderboard.entries import Board, Entry, read_board
from pipeline.leaderboard.page import write_board

__all__ = ["Board", "Entry", "read_board", "write_board"]
