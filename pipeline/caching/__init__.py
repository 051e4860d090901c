"""Images → representations: read a tar, decode each image once, make all its views, run the frozen backbones, commit.

Upstream and downstream collections go through this very code, so their representations are comparable.
"""

from pipeline.caching.again import compare_again
from pipeline.caching.estimate import estimate
from pipeline.caching.job import CacheJob
from pipeline.caching.settings import CacheSettings

__all__ = ["CacheJob", "CacheSettings", "compare_again", "estimate"]
