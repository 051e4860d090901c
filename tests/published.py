"""Small copies of datasets, in exactly the layout in which their authors publish them: ``make_<kind>(folder)``."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image
from scipy.io import savemat


def picture(number, format_="JPEG", size=(6, 5)):
    """An encoded picture unlike that of another number."""
    pixels = np.random.default_rng(number).integers(0, 256, (*size, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format_)
    return buffer.getvalue()


def files(folder, paths):
    """Pictures, the first number 0."""
    for number, path in enumerate(paths):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(picture(number))


def text(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


def make_cub200(root, classes=8, count=2):
    folder = root / "CUB_200_2011"
    names = [f"{number:03d}.Bird_{number}" for number in range(1, classes + 1)]
    images = [
        (label, f"{name}/Bird_{index}_{label}.jpg") for label, name in enumerate(names, 1) for index in range(count)
    ]
    files(folder / "images", [path for _, path in images])
    text(folder / "classes.txt", *(f"{label} {name}" for label, name in enumerate(names, 1)))
    text(folder / "images.txt", *(f"{number} {path}" for number, (_, path) in enumerate(images, 1)))
    text(folder / "image_class_labels.txt", *(f"{number} {label}" for number, (label, _) in enumerate(images, 1)))
    text(folder / "train_test_split.txt", *(f"{number} {number % 2}" for number in range(1, len(images) + 1)))
    text(folder / "README", "as published")
    return folder


CARS = ("AM General Hummer SUV 2000", "Acura RL Sedan 2012", "Ram C/V Cargo Van 2012", "BMW X3 2012", *"vwxyz"[:4])


def cars(field, names, labels, **more):
    """Annotations as a row of MATLAB's structs."""
    fields = [("bbox_x1", float), (field, object), ("class", float), *((name, float) for name in more)]
    rows = np.zeros((1, len(names)), fields)
    rows[0][field], rows[0]["class"] = names, labels
    return rows


def make_cars196(root, count=2):
    """All in one folder."""
    labels = [label for label in range(1, len(CARS) + 1) for _ in range(count)]
    names = [f"car_ims/{number:06d}.jpg" for number in range(1, len(labels) + 1)]
    files(root, names)
    savemat(
        root / "cars_annos.mat",
        {
            "annotations": cars("relative_im_path", names, labels, test=0),
            "class_names": np.array([CARS], object),
        },
    )
    return root


def make_cars196_in_two(root, count=2):
    """With a devkit."""
    folder = root / "stanford_cars"
    labels = [label for label in range(1, len(CARS) + 1) for _ in range(count)]
    names = [f"{number:05d}.jpg" for number in range(1, len(labels) + 1)]
    for part in ("train", "test"):
        files(folder / f"cars_{part}", names)
    (folder / "devkit").mkdir()
    savemat(folder / "devkit/cars_meta.mat", {"class_names": np.array([CARS], object)})
    savemat(folder / "devkit/cars_train_annos.mat", {"annotations": cars("fname", names, labels)})
    savemat(folder / "cars_test_annos_withlabels.mat", {"annotations": cars("fname", names, labels)})
    return folder


def make_sop(root, classes=6, count=2):
    folder = root / "Stanford_Online_Products"
    for part, first in (("train", 1), ("test", 1 + classes)):
        rows = []
        for label in range(first, first + classes):
            sort = ("bicycle", "cabinet")[label % 2]
            rows += [(label, label % 2 + 1, f"{sort}_final/{label}_{index}.JPG") for index in range(count)]
        files(folder, [path for *_, path in rows])
        head = "image_id class_id super_class_id path"
        text(folder / f"Ebay_{part}.txt", head, *(f"{i} {a} {b} {path}" for i, (a, b, path) in enumerate(rows, first)))
    return folder
