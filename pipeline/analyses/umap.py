"""A map of the images by UMAP (umap-learn), uncertain images large and pale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.analyses._map import Map

if TYPE_CHECKING:
    from numpy.typing import NDArray


class UMAP(Map):
    """15 neighbours, a least distance of 0.1; with a seed it works on one thread, so that it repeats."""

    title = "Map by UMAP"
    about = "Images that the backbone finds alike lie together; sizes of groups and gaps between them mean little."
    method = "UMAP"
    packages = ("umap",)

    def layout(self, representation_RD: NDArray[Any], metric: str) -> NDArray[Any]:
        """Places by umap-learn."""
        import warnings

        import numpy as np

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)  # TensorFlow is not there, which another UMAP would take
            import umap

        made = umap.UMAP(
            n_neighbors=min(15, len(representation_RD) - 1),
            metric="cosine" if metric == "cosine" else "euclidean",
            random_state=0,
            n_jobs=1,
        )
        return np.asarray(made.fit_transform(representation_RD))
