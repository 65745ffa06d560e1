"""Advice on errors of the stack."""

from __future__ import annotations

import os

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
        ("  what(): rp != nullptr. Unable to find address for: pluto", "/etc/hosts"),
        ("FailedPreconditionError: Mismatched ALLREDUCE tensor shapes: One rank sent", "same order"),
        (
            "UnknownError: [/gloo/transport/tcp/pair.cc:598] Connection closed by peer [127.0.0.1]:1",
            "Another rank ended",
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


MEMORY_ERRORS = (
    "E tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:268] failed call: CUDA_ERROR_OUT_OF_MEMORY",
    "tensorflow.python.framework.errors_impl.InternalError: cudaSetDevice() on GPU:0 failed. Status: out of memory",
    "ResourceExhaustedError: OOM when allocating tensor with shape[9] on /job:a/device:GPU:0",
    "InternalError: Failed copying input tensor to GPU:0: Dst tensor is not initialized.",
    "E tensorflow/cuda_dnn.cc:407] Could not create cudnn handle: CUDNN_STATUS_INTERNAL_ERROR",
    "Loaded runtime CuDNN library failed: CUDNN_STATUS_NOT_INITIALIZED",
    "E cuDNN: CUDNN_STATUS_ALLOC_FAILED",
    "UnknownError: Failed to get convolution algorithm. This is probably because cuDNN failed to initialize",
    "UnimplementedError: Graph execution error: DNN library is not found.",
    "failed to create cublas handle: CUBLAS_STATUS_NOT_INITIALIZED",
    "InternalError: Attempting to perform BLAS operation using StreamExecutor without BLAS support [Op:MatMul]",
    "node:12 [0] NCCL WARN Cuda failure 2 'out of memory'",
)
TAKEN = "The memory of GPU 0 is in use (78 of 80 GB) by process 4000001 (/usr/bin/python, 77 GB): "


@pytest.fixture
def memory(nvidia_smi, monkeypatch):
    """memory(used, *processes): a GPU of which so many of 81559 MiB are used, by these rows of the driver's list."""

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(used: object, *processes: str) -> None:
        rows = "".join(f"echo '{process}'; " for process in processes)
        nvidia_smi(f"""case "$*" in
        *query-compute-apps*) {rows} ;;
        *query-gpu*) echo '0, GPU-a, {used}, 81559'; echo '1, GPU-b, 3, 81559' ;;
        esac""")

    return make


@pytest.mark.parametrize("line", MEMORY_ERRORS)
def test_who_holds_the_memory_of_a_gpu_is_named(memory, line):
    memory(79900, "4000001, 79000, GPU-a, /usr/bin/python", "4000002, 3, GPU-b, /usr/bin/python")
    advice = hint([line, "and more"])
    assert advice == f"{TAKEN}stop it, use another GPU (CUDA_VISIBLE_DEVICES), or use a smaller batch."


def test_several_who_hold_it_are_named(memory):
    memory(79900, "4000001, 79000, GPU-a, /usr/bin/python", "4000002, [N/A], GPU-a, [Not Found]")
    advice = hint(MEMORY_ERRORS[:1])
    assert advice.startswith(f"{TAKEN[:-2]} and process 4000002 (outside this container): stop one, use another GPU")


def test_in_a_container_nobody_may_be_named(memory):
    memory(79900)
    assert "is in use (78 of 80 GB) by processes that the driver does not list here, as in a container" in hint(
        MEMORY_ERRORS
    )


def test_memory_that_only_the_run_had_taken_asks_for_less(memory):
    memory(20000, "4000001, 20000, GPU-a, python")
    assert "its own GPU" in hint(MEMORY_ERRORS) and "smaller batch" in hint(MEMORY_ERRORS)


def test_a_gpu_that_the_run_could_not_use_is_not_blamed(memory, monkeypatch):
    memory(79900, "4000001, 79000, GPU-a, /usr/bin/python")
    assert "its own GPU" in hint(MEMORY_ERRORS, gpus=[1])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert "its own GPU" in hint(MEMORY_ERRORS)


def test_memory_that_this_process_has_taken(memory):
    memory(70000, f"{os.getpid()}, 69000, GPU-a, /usr/bin/python")
    assert f"by process {os.getpid()} (this process, 67 GB): stop it" in hint(MEMORY_ERRORS)


def test_a_driver_that_does_not_answer_names_nobody(nvidia_smi):
    nvidia_smi("exit 9")
    assert "its driver does not report which processes use it: stop other programs" in hint(MEMORY_ERRORS)
