"""An index of images: what it says is taken, and what is wrong with it is said with line and column."""

import pytest

from pipeline.datasets import make_dataset
from pipeline.errors import UserError

HEADER = "path,label,key\n"


def index(root, text, name="index.csv", **config):
    root.mkdir(exist_ok=True)
    data = text if isinstance(text, bytes) else text.encode()
    (root / name).write_bytes(data)
    return make_dataset({"kind": "index_file", "root": str(root), "index": name, **config})


def taken(dataset):
    dataset.check()
    return sorted((image.key, image.class_name, image.source) for image in dataset.images())


def test_paths_start_from_the_root_whatever_the_folders(tree, picture):
    root = tree({"a": 2, "b/c": 1})
    dataset = index(root, 'label,path\nant,a/0.png\n\nbee,a/1.png\n"bee, the",b/c/0.png\nant,notes.txt\n')
    assert taken(dataset) == [("a/0", "ant", "a/0.png"), ("a/1", "bee", "a/1.png"), ("b/c/0", "bee, the", "b/c/0.png")]
    assert dataset.left_out() == {"no image by its extension": 1}
    data = {image.source: image.data for image in dataset.images()}
    assert data == {name: (root / name).read_bytes() for name in data}


@pytest.mark.parametrize(
    ("name", "text", "config"),
    [
        ("i.tsv", "path\tlabel\na/0.png\tant\n", {}),
        ("i.csv", "file;kind\r\na/0.png;ant\r\n", {"delimiter": ";", "path_column": "file", "label_column": "kind"}),
        ("i.csv", b"\xef\xbb\xbfpath,label\n a/0.png , ant \n", {}),  # a byte order mark, as Excel writes it
        ("i.csv", "path,label\n0.png,ant\n", {"images": "a"}),
    ],
)
def test_dialects(tree, name, text, config):
    (found,) = taken(index(tree({"a": 1}), text, name, **config))
    assert found[1] == "ant"


def test_absolute_paths_and_an_index_elsewhere(tree, tmp_path):
    root = tree({"a": 1})
    dataset = index(tmp_path / "lists", f"path,label\n{root}/a/0.png,ant\n")
    ((key, _, source),) = taken(dataset)
    assert not key.startswith("/")
    assert not source.startswith("/")
    assert taken(index(tmp_path / "lists", "path,label\na/0.png,ant\n", images=str(root))) == [
        ("a/0", "ant", "a/0.png")
    ]


def test_keys_of_ones_own_and_a_path_that_stands_twice(tree):
    root = tree({"a": 2})
    own = index(root, HEADER + "a/0.png,ant,x/1\na/1.png,ant,x/2\n", key_column="key")
    assert [key for key, _, _ in taken(own)] == ["x/1", "x/2"]
    twice = taken(index(root, "path,label\na/0.png,ant\na/0.png,bee\n"))
    assert {name for _, name, _ in twice} == {"ant", "bee"}
    assert len({key for key, _, _ in twice}) == 2


def test_labels_that_are_indices(tree, tmp_path):
    root = tree({"a": 3})
    (tmp_path / "classes.txt").write_text("cat\nant\nbee\n")
    config = {"labels": "indices", "class_list": str(tmp_path / "classes.txt")}
    dataset = index(root, "path,label\na/0.png,1\na/1.png,0\na/2.png,1\n", **config)
    assert [name for _, name, _ in taken(dataset)] == ["ant", "cat", "ant"]
    assert dataset.class_names() == ["cat", "ant"]
    for label, said in (("3", r"line 2, column label: 3, but .* the classes 0 to 2"), ("ant", "'ant' is no index")):
        with pytest.raises(UserError, match=said):
            index(root, f"path,label\na/0.png,{label}\n", **config).check()
    with pytest.raises(UserError, match="labels=indices needs class_list"):
        index(root, "path,label\n", labels="indices")


def test_parquet_is_as_csv(tree):
    parquet = pytest.importorskip("pyarrow.parquet")
    from pyarrow import table

    root = tree({"a": 2})
    parquet.write_table(table({"path": ["a/0.png", "a/1.png"], "n": [1.5, 2.5], "label": [7, 8]}), root / "i.parquet")
    dataset = make_dataset({"kind": "index_file", "root": str(root), "index": "i.parquet"})
    assert taken(dataset) == taken(index(root, "path,label\na/0.png,7\na/1.png,8\n"))
    parquet.write_table(table({"path": ["a/0.png", None], "label": ["x", "y"]}), root / "i.parquet")
    with pytest.raises(UserError, match=r"i\.parquet, row 2, column path: empty"):
        make_dataset({"kind": "index_file", "root": str(root), "index": "i.parquet"}).check()
    (root / "i.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UserError, match=r"after row 0: cannot be read as Parquet"):
        make_dataset({"kind": "index_file", "root": str(root), "index": "i.parquet"}).check()


@pytest.mark.parametrize(
    ("text", "config", "said"),
    [
        ("file,label\na,b\n", {}, r"no column 'path'; read as delimiter ',' it has 'file', 'label'"),
        ("", {}, "no column 'path'.*it has none"),
        ("path,label,path\n", {}, "more than one column 'path'"),
        ("path,label\na/0.png,ant\na/1.png,\n", {}, r"line 3, column label: empty"),
        ("path,label\na/0.png,ant,bee\n", {}, r"line 2: 3 values for 2 columns"),
        ("path,label\na/0.png\n", {}, r"line 2: 1 values for 2 columns"),
        ('path,label\na/0.png,"ant\n', {}, r"line 2: cannot be read \(unexpected end of data"),
        (b"path,label\na/0.png,\xff\n", {}, r"cannot be read \('utf-8'"),
        ("path,label\na/9.png,ant\n", {}, r"line 2, column path: .*a/9\.png cannot be read \(No such file"),
        ("path,label\n", {}, "no images in"),
        (HEADER + "a/0.png,ant,a.b\n", {"key_column": "key"}, r"line 2, column key: 'a\.b' is no key"),
        (
            HEADER + "a/0.png,ant,k\na/1.png,ant,k\n",
            {"key_column": "key"},
            "line 3, column key: .* stands in line 2",
        ),
        ("path,label\n", {"delimiter": ";;"}, "delimiter must be one sign"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_column(tree, text, config, said):
    with pytest.raises(UserError, match=said):
        index(tree({"a": 2}), text, **config).check()


def test_an_image_that_is_missing_stops_the_tar_with_its_line(tree):
    dataset = index(tree({"a": 1}), "path,label\na/0.png,ant\na/1.png,ant\n")
    with pytest.raises(UserError, match=r"line 3, column path: .*a/1\.png cannot be read"):
        list(dataset.images())
