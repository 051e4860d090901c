"""Small copies of datasets with votes, places or several labels an image, in their authors' layout."""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
from scipy.io import savemat

from pipeline.class_lists import class_list
from pipeline.datasets import dataset_class
from tests import published
from tests.published import files, text


def make_voted(kind, root, count=2):
    """Image n of a fold has three votes for class n, one for the next, and one annotator without an answer."""
    cls = dataset_class(kind)
    name, classes = cls.inside[0], cls.classes
    images = [f"fold{fold}/{fold}_{n:02d}.png" for fold in range(1, 6) for n in range(count * len(classes))]
    files(root / name, images)
    answers = [[] for _ in range(5)]
    for number, image in enumerate(images):
        first = number % len(classes)
        given = [classes[first]] * 3 + [classes[(first + 1) % len(classes)], None]
        for annotator, label in zip(answers, given, strict=True):
            annotator.append({"image_path": f"{name}/{image}", "class_label": label, "created_at": "01-01-2022"})
    annotators = [{"name": "INVALID", "dataset_name": name, "annotations": given} for given in answers]
    (root / name / "annotations.json").write_text(json.dumps(annotators))
    return root / name


def make_cifar10h(root, count=12):
    """Image n has n + 1 votes for its class n % 10 and one for the next."""
    published.make_cifar10(root, count)
    counts = np.zeros((count, 10), np.int64)
    rows = np.arange(count)
    counts[rows, rows % 10] = rows + 1
    counts[rows, (rows + 1) % 10] += 1
    np.save(root / "cifar10h-counts.npy", counts)
    return root


REAL = {1: [], 2: [970, 795], 3: [230], 4: [231, 230], 7: [795], 50_000: [0]}


@lru_cache(maxsize=1)
def real_labels():
    return json.dumps([REAL.get(number, [1]) for number in range(1, 50_001)])


def make_imagenet1k_real(root, flat=False):
    """Images 1, 2, 3, 4, 7 and 50,000; their label of 2012 is the number modulo three."""
    wnids = class_list("imagenet1k", "here")
    images = {number: wnids[number % 3] for number in REAL}
    names = {number: f"ILSVRC2012_val_{number:08d}.JPEG" for number in images}
    files(root / "val", [names[n] if flat else f"{wnid}/{names[n]}" for n, wnid in images.items()])
    (root / "real.json").write_text(real_labels())
    if flat:  # the devkit counts its classes in another order, from 1, and knows higher ones without images
        data = root / "ILSVRC2012_devkit_t12/data"
        order = [*reversed(wnids), "n00000001"]
        synsets = np.zeros((len(order), 1), [("ILSVRC2012_ID", object), ("WNID", object)])
        synsets["ILSVRC2012_ID"][:, 0], synsets["WNID"][:, 0] = range(1, len(order) + 1), order
        text(data / "ILSVRC2012_validation_ground_truth.txt", *(1000 - number % 3 for number in range(1, 50_001)))
        savemat(data / "meta.mat", {"synsets": synsets})
    return root


PLACES = {  # city → side → (easting, northing, panorama, of the subtask)
    "cph": {
        "query": [(0, 0, False, True), (100, 0, False, True), (0, 0, True, True), (500, 0, False, True)],
        "database": [(25, 0, False, True), (0, 26, False, True), (100, 1, False, True), (100, 2, False, False)],
    },
    "sf": {"query": [(0, 0, False, True)], "database": [(3, 4, False, True), (4, 4, False, True)]},
    "zurich": {"query": [(0, 0, False, True)], "database": [(0, 0, False, True)]},  # a city to train on
}


def make_msls(root):
    for city, sides in PLACES.items():
        for side, rows in sides.items():
            folder = root / "train_val" / city / side
            keys = [f"{city}-{side[0]}_{number}" for number in range(len(rows))]
            files(folder, [f"images/{key}.jpg" for key in keys])
            head = ",key,easting,northing,night,control_panel,view_direction,unique_cluster"
            places = (f"{i},{key},{rows[i][0]},{rows[i][1]},False,False,Forward,0" for i, key in enumerate(keys))
            text(folder / "postprocessed.csv", head, *places)
            raw = (f"{i},{key},12.5,55.7,90.0,2019-01-01,{rows[i][2]}" for i, key in enumerate(keys))
            text(folder / "raw.csv", ",key,lon,lat,ca,captured_at,pano", *raw)
            text(folder / "subtask_index.csv", ",all,s2w", *(f"{i},{row[3]},False" for i, row in enumerate(rows)))
    return root / "train_val"
