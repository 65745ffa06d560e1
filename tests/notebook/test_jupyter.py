"""Jupyter for the course alone: what its kernels find in their environment."""

from __future__ import annotations

from course_lib.notebook import jupyter

GROWTH, LOG_LEVEL = "TF_FORCE_GPU_ALLOW_GROWTH", "TF_CPP_MIN_LOG_LEVEL"


def test_a_kernel_leaves_memory_of_a_gpu_to_its_ranks_unless_the_user_decides_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv(GROWTH, raising=False)
    assert jupyter.environment(tmp_path)[GROWTH] == "true"
    monkeypatch.setenv(GROWTH, "false")
    assert jupyter.environment(tmp_path)[GROWTH] == "false"


def test_a_kernel_is_quiet_whatever_the_user_has_set(monkeypatch, tmp_path):
    monkeypatch.setenv(LOG_LEVEL, "0")
    assert jupyter.environment(tmp_path)[LOG_LEVEL] == "2"
