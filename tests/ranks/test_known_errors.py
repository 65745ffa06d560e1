"""Advice on errors of the stack."""

from __future__ import annotations

import pytest

from course_lib.ranks.messages.known_errors import hint


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("AttributeError: 'float' object has no attribute 'dtype'", "momentum_correction=False"),
        ("ModuleNotFoundError: No module named 'tf_keras'", "course doctor"),
        ("ImportError: `keras.optimizers.legacy` is not supported in Keras 3.", "course doctor"),
        ("Exception: URL fetch failure on https://example.org/x.tar.gz: None -- unknown error", "data.load"),
        ("urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>", "data.load"),
        ("W CUDA_ERROR_OUT_OF_MEMORY: out of memory", "smaller batch"),
        ("ResourceExhaustedError: OOM when allocating tensor with shape[9] on /job:a/device:GPU:0", "smaller batch"),
        ("FailedPreconditionError: Mismatched ALLREDUCE tensor shapes: One rank sent", "same order"),
        (
            "UnknownError: [/gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:1",
            "Another rank left",
        ),
    ],
)
def test_a_known_error_has_its_advice(line, advice):
    assert advice in hint(["Traceback (most recent call last):", line, "and more"])


@pytest.mark.parametrize(
    "line",
    [
        "AttributeError: module 'keras.api._v2.keras.layers' has no attribute 'Dens'",
        "ResourceExhaustedError: OOM when allocating tensor with shape[9] on /job:a/device:CPU:0",
        "",
    ],
)
def test_another_error_has_none(line):
    assert hint([line]) == ""


def test_of_several_the_last_counts():
    assert "data.load" in hint(["Connection reset by peer", "URL fetch failure on x"])
