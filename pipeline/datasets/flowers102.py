"""Oxford 102 Flower: 8,189 photographs of 102 flowers, 40 to 258 each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import numpy as np

from pipeline.config import config
from pipeline.datasets._listed import ListedConfig
from pipeline.datasets._listing import Entry
from pipeline.datasets._mat import read_mat
from pipeline.datasets._published import PublishedFiles, how_to_get, looked_up
from pipeline.datasets.base import About

LABELS, PARTS = "imagelabels.mat", "setid.mat"
IDS = {"train": ("trnid",), "val": ("valid",), "test": ("tstid",), "all": ("trnid", "valid", "tstid")}
# The files have numbers only; the names in their order, as torchvision has them.
NAMES = (
    "pink primrose",
    "hard-leaved pocket orchid",
    "canterbury bells",
    "sweet pea",
    "english marigold",
    "tiger lily",
    "moon orchid",
    "bird of paradise",
    "monkshood",
    "globe thistle",
    "snapdragon",
    "colt's foot",
    "king protea",
    "spear thistle",
    "yellow iris",
    "globe-flower",
    "purple coneflower",
    "peruvian lily",
    "balloon flower",
    "giant white arum lily",
    "fire lily",
    "pincushion flower",
    "fritillary",
    "red ginger",
    "grape hyacinth",
    "corn poppy",
    "prince of wales feathers",
    "stemless gentian",
    "artichoke",
    "sweet william",
    "carnation",
    "garden phlox",
    "love in the mist",
    "mexican aster",
    "alpine sea holly",
    "ruby-lipped cattleya",
    "cape flower",
    "great masterwort",
    "siam tulip",
    "lenten rose",
    "barbeton daisy",
    "daffodil",
    "sword lily",
    "poinsettia",
    "bolero deep blue",
    "wallflower",
    "marigold",
    "buttercup",
    "oxeye daisy",
    "common dandelion",
    "petunia",
    "wild pansy",
    "primula",
    "sunflower",
    "pelargonium",
    "bishop of llandaff",
    "gaura",
    "geranium",
    "orange dahlia",
    "pink-yellow dahlia?",
    "cautleya spicata",
    "japanese anemone",
    "black-eyed susan",
    "silverbush",
    "californian poppy",
    "osteospermum",
    "spring crocus",
    "bearded iris",
    "windflower",
    "tree poppy",
    "gazania",
    "azalea",
    "water lily",
    "rose",
    "thorn apple",
    "morning glory",
    "passion flower",
    "lotus",
    "toad lily",
    "anthurium",
    "frangipani",
    "clematis",
    "hibiscus",
    "columbine",
    "desert-rose",
    "tree mallow",
    "magnolia",
    "cyclamen",
    "watercress",
    "canna lily",
    "hippeastrum",
    "bee balm",
    "ball moss",
    "foxglove",
    "bougainvillea",
    "camellia",
    "mallow",
    "mexican petunia",
    "bromelia",
    "blanket flower",
    "trumpet creeper",
    "blackberry lily",
)


class Flowers102(PublishedFiles):
    """``root`` holds the two files of MATLAB and the folder ``jpg``. The authors' test is six times their train."""

    about: ClassVar[About] = About(
        title="Oxford 102 Flower",
        source="www.robots.ox.ac.uk/~vgg/data/flowers/102",
        licence="not stated by its authors",
        citation="Nilsback and Zisserman, Automated flower classification over a large number of classes, Indian "
        "Conference on Computer Vision, Graphics and Image Processing, 2008",
        class_count=102,
        sizes={"train": 1_020, "val": 1_020, "test": 6_149, "all": 8_189},
    )
    inside = ("flowers-102",)
    images_in = "jpg"
    remedy = how_to_get(
        about, "102flowers.tgz, imagelabels.mat and setid.mat", f"{LABELS}, {PARTS} and jpg/image_00001.jpg, …"
    )

    @config
    class Config(ListedConfig):
        """Which of its flowers."""

        name: str = "flowers102"
        # train: 1,020 images, ten a class; val: likewise; test: the other 6,149.
        part: Literal["train", "val", "test", "all"] = "test"

    def needed(self) -> Sequence[str]:
        """The labels, the parts and the images."""
        return LABELS, PARTS, self.images_in

    def names(self) -> Sequence[str]:
        """In the order of the numbers."""
        return NAMES

    def find(self, passed_over: Counter[str]) -> Iterator[Entry]:
        """The images of the part."""
        path, names = self.folder() / LABELS, dict(enumerate(NAMES, 1))
        (numbers,) = read_mat(path, "labels")
        labels = dict(enumerate(np.atleast_1d(numbers).tolist(), 1))
        for images in read_mat(self.folder() / PARTS, *IDS[self.config.part]):
            for image in np.atleast_1d(images).tolist():
                name = looked_up(names, looked_up(labels, image, "image", path), "class", path)
                yield Entry(name, f"image_{image:05d}.jpg", "jpg")
