"""A map of the images by t-SNE (openTSNE), uncertain images large and pale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.analyses._map import Map

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TSNE(Map):
    """Perplexity 30 (of few images less), begun at the principal components; one thread, so that it repeats."""

    title = "Map by t-SNE"
    about = "Images that the backbone finds alike lie together; distances between far groups mean nothing."
    method = "t-SNE"
    packages = ("openTSNE",)

    def layout(self, representation_RD: NDArray[Any], metric: str) -> NDArray[Any]:
        """Places by openTSNE."""
        import numpy as np
        import openTSNE

        made = openTSNE.TSNE(
            perplexity=min(30, (len(representation_RD) - 1) / 3),
            initialization="pca",
            metric="cosine" if metric == "cosine" else "euclidean",
            neighbors="exact",
            n_jobs=1,
            random_state=0,
        )
        return np.asarray(made.fit(representation_RD))
