"""These tests need Brain-Score's own environment: `make test-brainscore`."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("brainscore_vision") else ["test_*.py"]


def stand_in_for_the_cuda_operators() -> None:
    """torchvision from PyPI is built for CUDA; beside a CPU build of PyTorch its import lacks two operators."""
    from torch import library

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        global _library
        _library = library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            _library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


if not collect_ignore_glob:
    stand_in_for_the_cuda_operators()
