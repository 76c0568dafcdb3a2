"""From pictures to pixel values, beside what PIL makes of them."""

from typing import Any

import numpy as np
import pytest

from tests.backbones.guests import pictures
from uqformer.backbones._pictures import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Recipe,
    check_pixels,
    read_pictures,
)

PLAIN = {"mean": (0.0,) * 3, "std": (1.0,) * 3}


def smooth(height: int, width: int) -> Any:
    """Draw a picture of waves, without what any resizing would garble."""
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(3 * x / width + c) * np.cos(2 * y / height) for c in range(3)]
    return (127.5 + 100 * np.stack(waves, axis=-1)).astype(np.uint8)


def test_pixels_are_normalised_channel_by_channel() -> None:
    X = pictures()
    pixels = Recipe((8, 8), IMAGENET_MEAN, IMAGENET_STD).prepare(list(X))
    expected = (X / 255 - IMAGENET_MEAN) / IMAGENET_STD
    np.testing.assert_allclose(pixels, expected.transpose(0, 3, 1, 2), atol=1e-5)
    assert pixels.dtype == np.float32


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(16, 16), (40, 60), (7, 90)])
def test_resizing_is_that_of_pil(size: tuple[int, int], interpolation: str) -> None:
    Image = pytest.importorskip("PIL.Image")
    picture = smooth(33, 47)
    pixels = Recipe(size, **PLAIN, interpolation=interpolation).prepare([picture])
    resample = Image.Resampling[interpolation.upper()]
    resized = np.asarray(Image.fromarray(picture).resize(size[::-1], resample))
    levels = pixels[0].transpose(1, 2, 0) * 255
    assert np.abs(levels - resized).max() < 1.01  # one level of 255


@pytest.mark.parametrize("shape", [(30, 50), (50, 30), (20, 20)])
@pytest.mark.parametrize("share", [1.0, 0.8])
def test_the_middle_is_cut_out_of_the_resized_picture(
    shape: tuple[int, int], share: float
) -> None:
    Image = pytest.importorskip("PIL.Image")
    picture = smooth(*shape)
    pixels = Recipe((20, 20), **PLAIN, crop_share=share).prepare([picture])
    scale = int(20 / share) / min(shape)
    height, width = (int(side * scale + 1e-6) for side in shape)
    resized = Image.fromarray(picture).resize((width, height), Image.BILINEAR)
    top, left = round((height - 20) / 2), round((width - 20) / 2)
    middle = np.asarray(resized)[top : top + 20, left : left + 20]
    assert np.abs(pixels[0].transpose(1, 2, 0) * 255 - middle).max() < 1.01


def test_pictures_of_many_sizes_and_kinds_are_read() -> None:
    Image = pytest.importorskip("PIL.Image")
    first = pictures(1)[0]
    grey = Image.fromarray(first[..., 0])
    assert grey.mode == "L"
    read = read_pictures(
        [first, Image.fromarray(first), grey, smooth(9, 5), first[::-1]]
    )
    assert read is not None
    np.testing.assert_array_equal(read[1], first)
    np.testing.assert_array_equal(read[2], np.repeat(first[..., :1], 3, axis=-1))
    pixels = Recipe((8, 8), **PLAIN).prepare(read)
    np.testing.assert_array_equal(pixels[4], pixels[0][:, ::-1])
    assert pixels.shape == (5, 3, 8, 8)


def test_float_arrays_are_no_pictures_but_pixels() -> None:
    assert read_pictures(np.ones((2, 3, 8, 8))) is None


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("a.png", TypeError, "array of pictures or a list of them.*got str"),
        ([], TypeError, "at least one; got list"),
        (["a.png"], TypeError, "row 0 is str with dtype=<U5"),
        (
            np.ones((2, 8, 8), np.uint8),
            TypeError,
            r"row 0 is ndarray .* shape \(8, 8\)",
        ),
        (np.ones((2, 8, 8, 3), np.int64), TypeError, "with dtype=int64"),
        ([np.ones((8, 8, 3))], TypeError, "with dtype=float64"),
        (
            np.ones((2, 3, 8, 9), np.uint8),
            ValueError,
            r"row 0 has shape \(3, 8, 9\)\. Move them with X.transpose\(0, 2, 3, 1\)",
        ),
    ],
)
def test_other_things_are_no_pictures(X: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        read_pictures(X)


@pytest.mark.parametrize("n_channels", [1, 4])
def test_other_channels_are_named(n_channels: int) -> None:
    picture = np.ones((8, 8, n_channels), np.uint8)
    with pytest.raises(ValueError, match=f"row 0 has {n_channels}\\. Repeat a grey"):
        Recipe((8, 8), **PLAIN).prepare([picture])


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.ones((2, 8, 8)), r"got dtype=float64 and shape \(2, 8, 8\)"),
        (np.ones((2, 3, 8, 8), np.int64), "got dtype=int64"),
        (np.ones((2, 8, 8, 3)), r"3 channels at axis 1.*X.transpose\(0, 3, 1, 2\)"),
        (np.ones((2, 1, 8, 8)), r"got shape \(2, 1, 8, 8\)\.$"),
        (np.full((2, 3, 8, 8), np.nan), "must be finite"),
    ],
)
def test_pixels_are_checked(pixels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_pixels(pixels, 3)


def test_pixels_become_float32() -> None:
    assert check_pixels(np.ones((1, 3, 2, 2)), None).dtype == np.float32
