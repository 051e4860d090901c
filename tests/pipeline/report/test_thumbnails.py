import io
import tarfile
from pathlib import Path

from PIL import Image

from pipeline.report.thumbnails import SIDE, read_thumbnails


def png(colour: str, size: tuple[int, int]) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, format="PNG")
    return buffer.getvalue()


def make_tar(path: Path, images: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in images.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def test_only_the_wanted_images_are_read(tmp_path: Path) -> None:
    first = make_tar(tmp_path / "0.tar", {"a.png": png("red", (300, 100)), "b.png": png("blue", (10, 10))})
    tars = [first, tmp_path / "never_opened.tar", make_tar(tmp_path / "2.tar", {"c.png": png("lime", (50, 50))})]
    found = dict(read_thumbnails(tars, {2: {"c"}, 0: {"a"}}))
    assert sorted(found) == [(0, "a"), (2, "c")]
    image = Image.open(io.BytesIO(found[0, "a"])).convert("RGB")
    assert image.size == (SIDE, SIDE)
    red, green, blue = image.getpixel((SIDE // 2, SIDE // 2))
    assert red > 200
    assert max(green, blue) < 60
    assert min(image.getpixel((SIDE // 2, 2))) > 240, "the whole image is shown, on white"
