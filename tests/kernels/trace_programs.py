"""Print the graph that ``torch.compile`` hands to its backend for a layer and its gradients on a GPU.

Run it in a process of its own with SLEEPCONV_KERNEL=triton, without Triton's interpreter. There is no GPU here, and
PyTorch without CUDA cannot differentiate fake tensors on one: fake tensors on the CPU take the way of those on a GPU.
"""

import sys

import torch
import triton
from torch._functorch.aot_autograd import aot_export_joint_simple
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.backends.compiler import GPUTarget

from sleepconv import kernels
from sleepconv.functional import locally_connected2d


class A100:
    """All that PyTorch asks of Triton's driver to find out which arguments a program changes."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 80, 32)


triton.runtime.driver.set_active(A100())
kernels._check_runs_on = lambda name, tensor: None
with FakeTensorMode():
    x = torch.empty(16, 8, 6, 6, requires_grad=True)
    weight = torch.empty(6, 6, 4, 8, 3, 3, requires_grad=True)
    joint = aot_export_joint_simple(
        lambda x, weight: (locally_connected2d(x, weight, padding=1, position_major=True),),
        (x, weight),
        trace_joint=True,
    )
sys.stdout.write(str(joint.graph))
