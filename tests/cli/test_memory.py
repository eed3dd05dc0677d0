"""Memory that ran out is one line and exit status 1; any other failure keeps its traceback."""

import numpy as np
import pytest
import torch
from command_line import refusal, run_tacit

_INTERNAL = "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"  # as an H200 said it while another run had all of its memory
_GIB = 2**30


def _fails(monkeypatch, fail):
    monkeypatch.setattr("tacit.cli.app", lambda standalone_mode: fail())


def _raises(error):
    def fail():
        raise error

    return fail


@pytest.fixture
def gpu_with(monkeypatch):
    """Says that a GPU of 140 GiB has this many bytes free."""

    def set_free(free):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, 140 * _GIB))

    return set_free


@pytest.mark.parametrize("empty", [torch.empty, np.empty], ids=["torch", "numpy"])
def test_a_machine_without_room_is_told_in_one_line(monkeypatch, empty):
    _fails(monkeypatch, lambda: empty(2**57))
    assert "the machine ran out of memory" in refusal("train", status=1)


def test_a_gpu_without_room_is_told_in_one_line(monkeypatch, gpu_with):
    _fails(monkeypatch, _raises(torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB.")))
    told = refusal("train", status=1)
    assert "the GPU ran out of memory. End what else runs on it" in told  # nobody to ask: this process uses no GPU
    gpu_with(_GIB // 2)
    told = refusal("train", status=1)
    for part in ("0.5 of its 140.0 GiB are free", "nvidia-smi", "--jobs", "--device cpu"):
        assert part in told


@pytest.mark.parametrize("said", ["CUDA error: out of memory\nFor debugging …", "Triton Error [CUDA]: out of memory"])
def test_what_says_in_words_that_a_gpu_has_no_room_is_told_in_one_line(monkeypatch, said):
    _fails(monkeypatch, _raises(RuntimeError(said)))
    assert "the GPU ran out of memory" in refusal("train", status=1)


@pytest.mark.parametrize(
    "said", [_INTERNAL, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"]
)
def test_a_library_that_fails_on_a_full_gpu_found_no_room(monkeypatch, gpu_with, said):
    gpu_with(_GIB)
    _fails(monkeypatch, _raises(RuntimeError(said)))
    assert "the GPU ran out of memory" in refusal("train", status=1)


def test_a_library_that_fails_with_room_left_keeps_its_traceback(monkeypatch, gpu_with):
    _fails(monkeypatch, _raises(RuntimeError(_INTERNAL)))
    with pytest.raises(RuntimeError, match="INTERNAL_ERROR"):  # no GPU that could be full
        run_tacit("train")
    gpu_with(100 * _GIB)
    with pytest.raises(RuntimeError, match="INTERNAL_ERROR"):
        run_tacit("train")


def test_another_failure_keeps_its_traceback_on_a_full_gpu(monkeypatch, gpu_with):
    gpu_with(0)
    _fails(monkeypatch, _raises(RuntimeError("mat1 and mat2 shapes cannot be multiplied")))
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        run_tacit("train")


def test_a_gpu_that_does_not_answer_hides_no_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", _raises(RuntimeError("CUDA error: unknown error")))
    _fails(monkeypatch, _raises(torch.OutOfMemoryError("CUDA out of memory.")))
    assert "the GPU ran out of memory. End" in refusal("train", status=1)
