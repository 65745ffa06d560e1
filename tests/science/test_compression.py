"""Compressed gradients: what is sent, what is kept, and what comes of it."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import compression
from course_lib.compression import Dense, LocalCommunicator, PowerSGD, Sign, TopK

SHAPES = ((6, 4), (4,), (4, 3), (3,))
LENGTH = 43
ENDS = (0, 24, 28, 40, 43)


@pytest.fixture
def gradients():
    return np.random.default_rng(0).normal(size=(3, LENGTH)).astype(np.float32)


def test_a_wire_counts_what_a_rank_hands_over_and_what_rings_make_of_it(gradients):
    wire = LocalCommunicator()
    np.testing.assert_allclose(wire.mean(gradients), gradients.mean(0), rtol=1e-6)
    assert wire.gather(gradients[:, :5].astype(np.uint8)).shape == (3, 5)
    assert (wire.reduced, wire.gathered) == (4 * LENGTH, 5)
    assert wire.sent(2) == 4 * LENGTH + 5
    assert wire.sent(4) == 1.5 * 4 * LENGTH + 3 * 5


@pytest.mark.parametrize(
    ("make", "nbytes"),
    [
        (Dense, 4 * LENGTH),
        (lambda wire: TopK(wire, 0.1), 4 * 8),
        (lambda wire: Sign(wire, ENDS), 6 + 4 * 4),
        (lambda wire: PowerSGD(wire, SHAPES, 2), 4 * (2 * (6 + 4) + 2 * (4 + 3) + 7)),
    ],
)
def test_bytes_of_an_update_on_two_ranks(make, nbytes, gradients):
    wire = LocalCommunicator()
    make(wire).compressed_mean(gradients[:2])
    assert wire.sent(2) == nbytes


COMPRESSORS = pytest.mark.parametrize(
    ("make", "arguments"), [(TopK, (0.05,)), (Sign, (ENDS,)), (PowerSGD, (SHAPES, 1))], ids=["TopK", "Sign", "PowerSGD"]
)


@COMPRESSORS
def test_what_is_sent_and_what_is_kept_add_up_to_all_gradients(make, arguments):
    random, compressor, sent, given = np.random.default_rng(1), make(LocalCommunicator(), *arguments), 0, 0
    for _ in range(30):
        gradients = random.normal(size=(2, LENGTH)).astype(np.float32)
        given = given + gradients.mean(0)
        sent = sent + compressor.compressed_mean(gradients)
    np.testing.assert_allclose(sent + compressor.residual.mean(0), given, atol=1e-4)


@COMPRESSORS
def test_without_a_memory_nothing_is_kept(make, arguments, gradients):
    compressor = make(LocalCommunicator(), *arguments, memory=False)
    compressor.compressed_mean(gradients)
    assert np.all(compressor.residual == 0)


def test_the_largest_of_each_rank_are_sent():
    compressor = TopK(LocalCommunicator(), 0.25)
    mean = compressor.compressed_mean(np.array([[1, -8, 2, 3], [0, -4, 9, 1]], np.float32))
    np.testing.assert_array_equal(mean, [0, -4, 4.5, 0])
    np.testing.assert_array_equal(compressor.residual, [[1, 0, 2, 3], [0, -4, 0, 1]])


def test_momentum_before_compression_moves_a_weight_as_ordinary_momentum_would_when_it_is_sent():
    random, compressor = np.random.default_rng(2), TopK(LocalCommunicator(), 0.1, momentum=0.9)
    velocity, moved, sent = 0, 0, np.zeros(LENGTH)
    for _ in range(40):
        gradient = random.normal(size=(1, LENGTH)).astype(np.float32)
        velocity = 0.9 * velocity + gradient[0]
        moved = moved + velocity
        step = compressor.compressed_mean(gradient)
        sent += step
        np.testing.assert_allclose(sent[step != 0], moved[step != 0], atol=1e-4)


def test_masking_empties_the_velocity_of_what_is_sent(gradients):
    compressor = TopK(LocalCommunicator(), 0.1, momentum=0.9, masking=True)
    compressor.compressed_mean(gradients)
    assert np.all((compressor.velocity == 0) == (compressor.residual == 0))
    assert (compressor.velocity == 0).sum(1).tolist() == [4, 4, 4]


def test_clipping_shortens_long_gradients_only():
    compressor = TopK(LocalCommunicator(), 1.0, clip=2.0)
    long, short = np.array([3, 4], np.float32), np.array([0.3, 0.4], np.float32)
    mean = compressor.compressed_mean(np.stack([long, short, short, short]))
    np.testing.assert_allclose(mean, (long / 5 + 3 * short) / 4, rtol=1e-6)


def test_the_warm_up_begins_with_a_quarter_and_ends_with_the_ratio():
    compressor, wire = TopK(LocalCommunicator(), 0.01, warm_up=4), LocalCommunicator()
    compressor.communicator, sent = wire, []
    for gradient in np.random.default_rng(3).normal(size=(6, 1, 1_000)).astype(np.float32):
        before = wire.gathered
        compressor.compressed_mean(gradient)
        sent.append((wire.gathered - before) // 8)
    assert sent == [250, 112, 50, 22, 10, 10]


def test_signs_carry_the_mean_size_of_each_tensor():
    found = Sign(LocalCommunicator(), (0, 2, 4)).compressed_mean(np.array([[1, -3, 10, 20]], np.float32))
    np.testing.assert_array_equal(found, [2, -2, 15, 15])


def test_signs_of_velocities():
    signs = Sign(LocalCommunicator(), (0, 1), memory=False, momentum=0.5)
    assert [float(signs.compressed_mean(np.array([[g]], np.float32))[0]) for g in (4, -1, 0)] == [4, 1, 0.5]


def test_low_rank_is_exact_where_the_mean_has_that_rank():
    random = np.random.default_rng(4)
    mean = [random.normal(size=(6, 2)) @ random.normal(size=(2, 4)), random.normal(size=4)]
    mean += [random.normal(size=(4, 2)) @ random.normal(size=(2, 3)), random.normal(size=3)]
    mean = compression.joined(mean, 0)
    noise = random.normal(size=LENGTH)
    gradients = np.stack([mean - noise, mean + noise]).astype(np.float32)
    found = PowerSGD(LocalCommunicator(), SHAPES, 2).compressed_mean(gradients)
    np.testing.assert_allclose(found, mean, atol=1e-4)


def test_the_warm_start_finds_the_largest_singular_vectors():
    kernel = np.random.default_rng(5).normal(size=(1, 48)).astype(np.float32)
    compressor = PowerSGD(LocalCommunicator(), ((8, 6),), 2, memory=False)
    found = [compressor.compressed_mean(kernel) for _ in range(80)]
    u, s, v = np.linalg.svd(kernel.reshape(8, 6))
    best = (u[:, :2] * s[:2] @ v[:2]).ravel()
    assert np.linalg.norm(found[-1] - best) < 0.05 * np.linalg.norm(best) < np.linalg.norm(found[0] - best)


def test_a_small_kernel_is_sent_with_all_its_columns(gradients):
    np.testing.assert_allclose(
        PowerSGD(LocalCommunicator(), SHAPES, 9).compressed_mean(gradients), gradients.mean(0), atol=1e-5
    )


def test_split_and_joined_are_each_other_s_inverse(gradients):
    tensors = compression.split(gradients, SHAPES)
    assert [tensor.shape for tensor in tensors] == [(3, *shape) for shape in SHAPES]
    np.testing.assert_array_equal(compression.joined(tensors), gradients)


def test_power_sgd_takes_matrices_and_vectors_only():
    with pytest.raises(ValueError, match=r"\(3, 3, 1, 8\)"):
        PowerSGD(LocalCommunicator(), [(3, 3, 1, 8), (8,)], 2)
