"""Giant images wait for each other; small ones for nobody; nothing is kept of a giant afterwards."""

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from pipeline.faults import BadImage
from pipeline.images import decode as module
from pipeline.images.decode import decode, use_decoded
from pipeline.images.room import GIANT, SMALL, Room
from tests.pipeline.images.dirt import encoded, png, png_16

MP = 1_000_000


class Watch:
    """How many pixels were in use at once, at most."""

    def __init__(self):
        self.now, self.most, self.lock = 0, 0, threading.Lock()

    def use(self, room, pixels):
        with room.taken(pixels):
            with self.lock:
                self.now += pixels
                self.most = max(self.most, self.now)
            time.sleep(0.002)
            with self.lock:
                self.now -= pixels


def test_no_more_than_there_is_room_for_at_once():
    watch, room = Watch(), Room(20 * MP)
    sizes = np.random.default_rng(0).integers(5, 20, 60) * MP
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda pixels: watch.use(room, int(pixels)), sizes))
    assert 10 * MP < watch.most <= 20 * MP
    assert room.used == 0


def test_one_that_is_larger_than_the_room_comes_in_alone():
    watch, room = Watch(), Room(10 * MP)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda pixels: watch.use(room, pixels), [30 * MP, 6 * MP, 31 * MP, 5 * MP]))
    assert watch.most == 31 * MP


def test_small_ones_do_not_wait_and_a_failure_gives_the_room_back():
    room = Room(10 * MP)
    with room.taken(10 * MP):
        with room.taken(SMALL - 1):
            pass
        with pytest.raises(ZeroDivisionError), room.taken(1):
            _ = 1 / 0
    with pytest.raises(ZeroDivisionError), room.taken(10 * MP):
        _ = 1 / 0
    assert room.used == 0


def test_decoding_takes_room_until_the_image_is_used(monkeypatch):
    room = Room(10 * MP)
    monkeypatch.setattr(module, "ROOM", room)
    data = encoded(Image.new("L", (2500, 2000)))  # 5 megapixels

    def use(image):
        assert room.used == 5 * MP
        return image.size

    assert use_decoded(data, use) == (2500, 2000)
    assert room.used == 0
    with pytest.raises(BadImage):
        use_decoded(png(2500, 2000, 8, 2, None), use)
    assert room.used == 0


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
def test_the_image_is_gone_when_its_room_is_given_back(monkeypatch, mode):
    seen = []

    class Asked(Room):
        def taken(self, pixels):
            def watched():
                with super(Asked, self).taken(pixels):
                    yield
                gc.disable()  # nothing but the count of references may free it
                try:
                    assert seen.pop()() is None
                finally:
                    gc.enable()

            from contextlib import contextmanager

            return contextmanager(watched)()

    monkeypatch.setattr(module, "ROOM", Asked(10 * MP))
    use_decoded(encoded(Image.new(mode, (30, 20))), lambda image: seen.append(weakref.ref(image)))
    assert not seen


def test_bands_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    rgba = Image.fromarray(rng.integers(0, 256, (37, 23, 4), dtype=np.uint8))
    graded = rgba.convert("RGB").quantize(9)
    images = [
        encoded(rgba),
        encoded(rgba.convert("LA")),
        encoded(graded, transparency=bytes(rng.integers(0, 256, 9, dtype=np.uint8))),
        encoded(rgba.convert("RGB"), transparency=(1, 2, 3)),
        png_16(rng.integers(0, 1 << 16, (37, 23, 1))),
    ]
    whole = [decode(data) for data in images]
    for pixels in (1, 60, 37 * 23):
        monkeypatch.setattr(module, "BAND_PIXELS", pixels)
        assert [decode(data).tobytes() for data in images] == [image.tobytes() for image in whole]


def test_several_rooms_that_share_a_lock_hold_one_giant_at_once():
    """As the decoding processes of one job do, each of which has a room of its own."""
    watch, lock, rooms = Watch(), threading.Lock(), [Room(10 * GIANT) for _ in range(3)]
    for room in rooms:
        room.giants = lock
    met = threading.Barrier(3)

    def meet(room):
        with room.taken(GIANT - 1):  # not giants: all three are in at once, or this breaks
            met.wait(30)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda room: watch.use(room, GIANT), rooms * 3))
        list(pool.map(meet, rooms))
    assert watch.most == GIANT
