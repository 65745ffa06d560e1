"""bfloat16: which processors have it, and what it gains."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import bfloat16


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile", "AMX"),
        ("flags\t\t: fpu avx512f avx512_bf16", "AVX512-BF16"),
        ("flags\t\t: fpu avx2 avx512f", None),
        ("model name\t: avx512_bf16\nbugs\t\t: amx_bf16\nflags\t\t: fpu", None),
        ("Features\t: fp asimd bf16", None),  # of an ARM processor
        ("", None),
    ],
)
def test_the_processors_instructions(flags, name, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n")
    monkeypatch.setattr(bfloat16, "CPUINFO", tmp_path / "cpuinfo")
    assert bfloat16.instructions() == name


def test_a_system_that_does_not_tell_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr(bfloat16, "CPUINFO", tmp_path / "missing")
    assert bfloat16.instructions() is None


def test_the_gain_is_measured_and_the_policy_stays():
    from tensorflow.keras import mixed_precision

    before = mixed_precision.global_policy().name
    mixed_precision.set_global_policy("mixed_float16")
    try:
        assert 0 < bfloat16.gain(seconds=0) < np.inf
        assert mixed_precision.global_policy().name == "mixed_float16"
    finally:
        mixed_precision.set_global_policy(before)


def test_each_network_trains_in_its_precision_with_weights_in_float32(monkeypatch):
    import tensorflow as tf

    networks = {}
    clone = tf.keras.models.clone_model

    def remember(*arguments, **settings):
        network = clone(*arguments, **settings)
        networks[network.layers[2].compute_dtype] = network
        return network

    monkeypatch.setattr(tf.keras.models, "clone_model", remember)
    bfloat16.gain(seconds=0)
    assert set(networks) == {"float32", "bfloat16"}
    for network in networks.values():
        assert {variable.dtype.name for variable in network.variables} == {"float32"}
        means = [variable.numpy() for variable in network.variables if "moving_mean" in variable.name]
        assert len(means) == 4 and all(np.any(mean) for mean in means)  # they begin at 0
