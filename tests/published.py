"""Small copies of datasets, in exactly the layout in which their authors publish them: ``make_<kind>(folder)``."""

from __future__ import annotations

import io
import pickle
import struct

import numpy as np
from PIL import Image
from scipy.io import savemat

from pipeline.datasets import make_dataset


def read(kind, root, **config):
    """The dataset, checked."""
    dataset = make_dataset({"kind": kind, "root": str(root), **config})
    dataset.check()
    return dataset


def found(dataset):
    """Source → class of all its images."""
    return {image.source: image.class_name for image in dataset.images()}


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


def pixels(count, seed, size=32):
    return np.random.default_rng(seed).integers(0, 256, (count, 3, size, size), dtype=np.uint8)


CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
CIFAR100 = tuple(f"fine_{number}" for number in range(100))
COARSE = tuple(f"coarse_{number}" for number in range(20))
BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")


def make_cifar10(root, count=12):
    """The binary form."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for seed, name in enumerate(BATCHES):
        records = [bytes([index % 10]) + image.tobytes() for index, image in enumerate(pixels(count, seed))]
        (folder / f"{name}.bin").write_bytes(b"".join(records))
    text(folder / "batches.meta.txt", *CIFAR10, "")
    return folder


def make_cifar10_python(root, count=12):
    """The Python form, as Python 2 wrote it."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for seed, name in enumerate(BATCHES):
        batch = {b"data": pixels(count, seed).reshape(count, -1), b"labels": [index % 10 for index in range(count)]}
        (folder / name).write_bytes(as_python_2(batch | {b"batch_label": name.encode()}))
    (folder / "batches.meta").write_bytes(as_python_2({b"label_names": [name.encode() for name in CIFAR10]}))
    return folder


def make_cifar100(root, count=12):
    folder = root / "cifar-100-binary"
    folder.mkdir(parents=True)
    for seed, name in enumerate(("train", "test")):
        records = [bytes([index % 20, 99 - index]) + image.tobytes() for index, image in enumerate(pixels(count, seed))]
        (folder / f"{name}.bin").write_bytes(b"".join(records))
    text(folder / "fine_label_names.txt", *CIFAR100)
    text(folder / "coarse_label_names.txt", *COARSE)
    return folder


def make_cifar100_python(root, count=12):
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    for seed, name in enumerate(("train", "test")):
        labels = {b"fine_labels": [99 - i for i in range(count)], b"coarse_labels": [i % 20 for i in range(count)]}
        (folder / name).write_bytes(as_python_2({b"data": pixels(count, seed).reshape(count, -1), **labels}))
    names = {b"fine_label_names": CIFAR100, b"coarse_label_names": COARSE}
    (folder / "meta").write_bytes(as_python_2({key: [name.encode() for name in of] for key, of in names.items()}))
    return folder


class _Python2(pickle._Pickler):
    """Writes texts and bytes as Python 2 wrote its texts; today's pickler of protocol 2 makes a call of bytes."""

    def _save_text(self, value):
        data = value.encode() if isinstance(value, str) else value
        self.write(pickle.BINSTRING + struct.pack("<i", len(data)) + data)
        self.memoize(value)

    dispatch = {**pickle._Pickler.dispatch, bytes: _save_text, str: _save_text}  # noqa: RUF012


def as_python_2(value):
    buffer = io.BytesIO()
    _Python2(buffer, 2).dump(value)
    # the module was called so when the files were made
    return buffer.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def make_oxford_pets(root, count=2):
    breeds = ("Abyssinian", "american_bulldog", "Egyptian_Mau", "yorkshire_terrier")
    for part, first in (("trainval", 1), ("test", 100)):
        names = [(f"{breed}_{first + i}", label) for label, breed in enumerate(breeds, 1) for i in range(count)]
        files(root / "images", [f"{name}.jpg" for name, _ in names])
        text(root / f"annotations/{part}.txt", *(f"{name} {label} {1 + label % 2} 1" for name, label in names))
    text(root / "annotations/list.txt", "#Image CLASS-ID SPECIES BREED ID", "#1:37 Class ids")
    return root


def make_flowers102(root, count=8):
    """Image n has the label (n - 1) % 4 + 1; the last half is test."""
    total = 4 * count
    files(root / "jpg", [f"image_{number:05d}.jpg" for number in range(1, total + 1)])
    savemat(root / "imagelabels.mat", {"labels": np.array([[(n % 4) + 1 for n in range(total)]], np.uint8)})
    train, val, test = np.split(np.arange(1, total + 1, dtype=np.uint16)[None], [count, 2 * count], axis=1)
    savemat(root / "setid.mat", {"trnid": train, "valid": val, "tstid": test})
    return root


def make_dtd(root, count=2):
    folder = root / "dtd"
    for first, part in enumerate(("train", "val", "test")):
        rows = [f"{name}/{name}_{first}{i}.jpg" for name in ("banded", "braided", "woven") for i in range(count)]
        files(folder / "images", rows)
        text(folder / f"labels/{part}1.txt", *rows)
        text(folder / f"labels/{part}2.txt", *rows[::2])
    text(folder / "labels/labels_joint_anno.txt", "as published")
    return folder


def make_caltech101(root, count=32):
    folder = root / "101_ObjectCategories"
    names = ("BACKGROUND_Google", "Faces", "accordion", "yin_yang")
    files(folder, [f"{name}/image_{number:04d}.jpg" for name in names for number in range(1, count + 1)])
    text(folder / "BACKGROUND_Google/tmp", "as published")
    return folder


def make_lfw(root):
    folder = root / "lfw"
    people = {"Aaron_Eckhart": 1, "Aaron_Peirsol": 4, "Zorica_Radovic": 2, "Abdullah_Gul": 3}
    files(folder, [f"{name}/{name}_{i:04d}.jpg" for name, count in people.items() for i in range(1, count + 1)])
    return folder


def make_sun397(root, count=3):
    folder = root / "SUN397"
    classes = ("/a/abbey", "/b/bakery/shop", "/b/bakery/kitchen")
    images = {part: [f"{name}/sun_{part}{i}.jpg" for name in classes for i in range(count)] for part in ("aa", "bb")}
    files(folder, [path[1:] for paths in images.values() for path in paths])
    files(folder, ["a/abbey/sun_in_no_partition.jpg"])
    text(folder / "ClassName.txt", *classes)
    text(root / "Training_01.txt", *images["aa"])
    text(root / "Testing_01.txt", *images["bb"])
    text(root / "Testing_02.txt", *images["aa"][:2])
    return folder


def make_vtab_lists_of_sun397(root):
    """Beside a copy that :func:`make_sun397` made: of all its images but one."""
    images = sorted(path.relative_to(root / "SUN397") for path in (root / "SUN397").rglob("sun_*.jpg"))
    for place, short in enumerate(("tr", "va", "te")):
        text(root / f"sun397_tfds_{short}.txt", *(f"/{path.as_posix()}" for path in images[1:][place::3]))


def make_svhn(root, count=12):
    root.mkdir(exist_ok=True)
    for seed, part in enumerate(("train", "test")):
        labels = np.array([[index % 10 + 1] for index in range(count)], np.uint8)  # 10 is the digit 0
        images = pixels(count, seed).transpose(2, 3, 1, 0)
        savemat(root / f"{part}_32x32.mat", {"X": images, "y": labels}, do_compression=True)
    return root


def make_mnist(root, count=20):
    for seed, part in enumerate(("train", "t10k")):
        labels = np.arange(count, dtype=np.uint8) % 10
        for name, values in (("images-idx3", pixels(count, seed, 6)[:, 0]), ("labels-idx1", labels)):
            head = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
            (root / f"{part}-{name}-ubyte").write_bytes(head + values.tobytes())
    return root
