"""The size of an image is read from the first bytes of its file."""

import pytest

from app.core.image_size import image_size
from tests.images import base64_of, gif, jpeg, png, segment, webp

#: A camera's own words, longer than any head that is read.
EXIF = segment(0xE1, b"Exif\x00\x00" + b"\x00" * 60_000)
TABLES = segment(0xC4, b"\x00" * 30) + segment(0xDB, b"\x01" * 65)


@pytest.mark.parametrize("size", [(1, 1), (640, 480), (65_535, 3)])
def test_png_gif_and_jpeg_say_width_and_height(size: tuple[int, int]) -> None:
    assert image_size(png(*size)) == size
    assert image_size(gif(*size)) == size
    assert image_size(jpeg(*size)) == size


def test_larger_sizes_than_two_bytes_hold() -> None:
    assert image_size(png(100_000, 70_000)) == (100_000, 70_000)


@pytest.mark.parametrize("frame", [0xC0, 0xC1, 0xC2, 0xC3, 0xC9, 0xCF])
def test_every_frame_of_a_jpeg_says_its_size(frame: int) -> None:
    assert image_size(jpeg(33, 44, frame=frame)) == (33, 44)


@pytest.mark.parametrize("before", [EXIF, TABLES, EXIF + TABLES, b"\xff\xff\xff", b""])
def test_frame_of_a_jpeg_is_found_behind_what_stands_in_front(before: bytes) -> None:
    assert image_size(jpeg(33, 44, before=before)) == (33, 44)


@pytest.mark.parametrize("table", [0xC4, 0xC8, 0xCC])
def test_tables_of_a_jpeg_are_no_frames(table: int) -> None:
    wrong = segment(table, b"\x08\x00\x07\x00\x09\x03")
    assert image_size(jpeg(33, 44, before=wrong)) == (33, 44)


def test_frame_beyond_what_is_read_is_not_found() -> None:
    assert image_size(jpeg(33, 44, before=EXIF * 3)) is None


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"VP8X", b"\x00" * 4 + (299).to_bytes(3, "little") + (199).to_bytes(3, "little")),
        (b"VP8L", b"\x2f" + (299 | 199 << 14).to_bytes(4, "little")),
        # Two bits of each number say how it is to be scaled.
        (
            b"VP8 ",
            b"\x00\x00\x00\x9d\x01\x2a"
            + (300 | 1 << 14).to_bytes(2, "little")
            + (200 | 2 << 14).to_bytes(2, "little"),
        ),
    ],
    ids=["extended", "lossless", "lossy"],
)
def test_every_kind_of_webp_says_its_size(kind: bytes, body: bytes) -> None:
    assert image_size(webp(kind, body)) == (300, 200)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "A",
        "!!!!",
        "iVBORw0K",
        png(0, 5),
        gif(5, 0),
        jpeg(0, 0),
        webp(b"ALPH", b"\x00" * 20),
        base64_of(b"RIFF\x00\x00\x00\x00WAVEfmt "),
        base64_of(b"\xff\xd8\xff\xc0"),
        base64_of(b"\xff\xd8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"),
        base64_of(b"%PDF-1.7"),
    ],
)
def test_what_is_no_image_has_no_size(data: str) -> None:
    assert image_size(data) is None


def test_segments_of_no_length_end() -> None:
    assert image_size(base64_of(b"\xff\xd8" + b"\xff\xe0\x00\x00" * 9)) is None


@pytest.mark.parametrize("cut", range(40))
def test_a_file_that_breaks_off_is_no_error(cut: int) -> None:
    for whole in (png(3, 4), gif(3, 4), jpeg(3, 4), webp(b"VP8X", b"\x00" * 10)):
        image_size(whole[:cut])
