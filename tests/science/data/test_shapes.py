"""The stand-in `shapes`: its form, that it repeats, and that its classes can be told apart."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import numpy as np
import pytest

from course_lib.data import shapes

SIZES = pytest.mark.parametrize("image_shape", [(28, 28, 1), (32, 32, 3)])


def digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


@SIZES
def test_form(image_shape: tuple) -> None:
    x, y = shapes.draw(600, image_shape)
    assert x.shape == (600, *image_shape) and x.dtype == np.uint8
    assert y.shape == (600,) and y.dtype == np.int64
    np.testing.assert_array_equal(np.bincount(y[:500]), [50] * 10)


@SIZES
def test_the_same_seed_gives_the_same_bytes_in_another_process(image_shape: tuple) -> None:
    code = (
        "import sys, hashlib; from course_lib.data import shapes; "
        f"x, y = shapes.draw(700, {image_shape}, seed=3); "
        "print(hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest())"
    )
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    assert digest(*shapes.draw(700, image_shape, seed=3)) == other


FASHION_LIKE = (
    (34.4, 34.6, 27.0, 34.5), (41.0, 46.1, 49.4, 39.5), (37.7, 43.4, 36.2, 45.7), (95.3, 52.8, 47.1, 22.4),
)  # fmt: skip
CIFAR_LIKE = (
    (64.1, 61.0, 72.3, 72.2), (120.2, 111.4, 116.2, 122.5), (53.2, 52.1, 51.6, 53.3), (168.0, 116.0, 110.3, 100.8),
)  # fmt: skip


@pytest.mark.parametrize(("image_shape", "brightness"), [((28, 28, 1), FASHION_LIKE), ((32, 32, 3), CIFAR_LIKE)])
def test_the_drawing_is_the_one_of_the_recorded_results(image_shape, brightness) -> None:
    """Mean brightness of the quarters of the first images: after a change, record all results again.

    Processors may round a sine differently in the last bit, so a hash would not do for every machine.
    """
    x, y = shapes.draw(4, image_shape)
    half = image_shape[0] // 2
    quarters = x.reshape(4, 2, half, 2, half, -1).mean((2, 4, 5)).reshape(4, 4)
    assert y.tolist() == [1, 4, 9, 4]
    np.testing.assert_allclose(quarters, brightness, atol=0.2)


@SIZES
def test_seeds_and_splits_differ(image_shape: tuple) -> None:
    drawn = [shapes.draw(500, image_shape, split=split, seed=seed)[0] for split in ("train", "test") for seed in (0, 1)]
    images = {image.tobytes() for x in drawn for image in x}
    assert len(images) == 2000


@SIZES
@pytest.mark.parametrize("count", [0, 1, 499, 500, 501])
def test_the_first_images_do_not_depend_on_how_many_are_drawn(image_shape: tuple, count: int) -> None:
    many, labels = shapes.draw(1200, image_shape)
    few, few_labels = shapes.draw(count, image_shape)
    np.testing.assert_array_equal(few, many[:count])
    np.testing.assert_array_equal(few_labels, labels[:count])


@SIZES
def test_images_are_not_flat_and_not_saturated(image_shape: tuple) -> None:
    x, _ = shapes.draw(500, image_shape)
    assert (x.reshape(500, -1).std(1) > 5).all()
    assert 40 < x.mean() < 200


def ideal(outline: int) -> np.ndarray:
    """The outline alone, white on black, upright and large."""
    v, u = (np.mgrid[:64, :64].astype(np.float32) + 0.5) / 32 - 1
    u, v = np.float32(1.3) * u[None], np.float32(1.3) * v[None]
    return shapes._inside(np.array([outline]), u, v, np.full((1, 1, 1), 25, np.float32))[0]


def test_outlines_are_what_they_are_called() -> None:
    area = {name: ideal(k).mean() * 4 * 1.3**2 for k, name in enumerate(shapes.CLASSES[: shapes.OUTLINES])}
    assert area["disc"] == pytest.approx(np.pi, rel=0.02)
    assert area["ring"] == pytest.approx(np.pi * (1 - 0.56**2), rel=0.02)
    assert area["square"] == pytest.approx(1.7**2, rel=0.02)
    assert area["triangle"] == pytest.approx(3 * np.sqrt(3) * 0.55**2, rel=0.02)
    assert area["cross"] == pytest.approx(4 * 0.6 - 0.6**2, rel=0.02)
    assert area["star"] < 0.5 * area["disc"] and area["crescent"] < 0.6 * area["disc"]
    middle = {name: ideal(k)[32, 32] for k, name in enumerate(area)}
    assert middle == {**dict.fromkeys(area, 1), "ring": 0, "crescent": 0}


def test_colour_hints_at_the_class_and_no_more() -> None:
    """The mean colour alone tells more than chance, but far from everything."""
    x, y = shapes.draw(4000, (32, 32, 3))
    colour = x[:, 8:24, 8:24].mean((1, 2))
    colour -= colour.mean(1, keepdims=True)
    means = np.stack([colour[:2000][y[:2000] == k].mean(0) for k in range(10)])
    guess = np.abs(colour[2000:, None] - means).sum(2).argmin(1)
    assert 0.13 < (guess == y[2000:]).mean() < 0.45


def test_other_splits_and_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="'validation'"):
        shapes.draw(1, split="validation")
    with pytest.raises(ValueError, match="not 4"):
        shapes.draw(1, (32, 32, 4))
