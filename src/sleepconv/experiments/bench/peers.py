"""What the locally connected layer is compared with: convolution, unfold and einsum, JAX."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sleepconv.kernels import use_kernel
from sleepconv.models import resnet20
from sleepconv.nn import LocallyConnected2d, to_grid_convolutional, to_locally_connected
from sleepconv.sleep import Instant

_Step = Callable[[], None]


class UnfoldEinsum2d(nn.Module):
    """The usual locally connected layer: unfold the input, then contract it with the weights."""

    def __init__(self, layer: LocallyConnected2d) -> None:
        super().__init__()
        self.weight, self.layer = layer.weight, [layer]

    def forward(self, x: Tensor) -> Tensor:
        """Compute the layer's output."""
        (layer,) = self.layer
        columns = F.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)  # type: ignore[arg-type]
        filters = self.weight.flatten(3).flatten(0, 1)
        y = torch.einsum("bkp,pok->bop", columns, filters)
        return y.unflatten(2, layer.output_size)


def unfold_network(local: nn.Module) -> nn.Module:
    """Copy a network and replace its locally connected layers by `UnfoldEinsum2d`."""
    model = copy.deepcopy(local)
    for module in model.modules():
        for name, child in module._modules.items():
            if isinstance(child, LocallyConnected2d):
                module._modules[name] = UnfoldEinsum2d(child)
    return model


def networks() -> dict[str, Callable[[], nn.Module]]:
    """Return constructors of ResNet20 in its three forms."""

    def local() -> nn.Module:
        return to_locally_connected(resnet20(), torch.zeros(1, 3, 32, 32))

    return {
        "convolution": lambda: _channels_last(resnet20()),
        "sleepconv": local,
        "unfold + einsum": lambda: unfold_network(local()),
    }


def training_step(model: nn.Module, batch: int) -> _Step:
    """Make a training step (forward, backward, fused AdamW) on a batch of random images."""
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(10, (batch,))
    if next(model.parameters()).is_contiguous(memory_format=torch.channels_last):
        images = images.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def layer_of_shape(shape: Sequence[int]) -> LocallyConnected2d:
    """Make a layer from (in channels, out channels, kernel, stride, input side) and, if not 1, the number of groups."""
    ins, outs, kernel, stride, side, *groups = shape
    layer = LocallyConnected2d(
        ins, outs, kernel, input_size=side, stride=stride, padding=kernel // 2, groups=(*groups, 1)[0], bias=False
    )
    layer.position_major = True
    return layer


def layer_steps(local: LocallyConnected2d, batch: int, *, unfold: bool) -> dict[str, _Step]:
    """Make forward and backward passes of one layer and its peers, each with input in its fastest layout."""
    conv = _channels_last(local.to_conv2d())
    x = torch.randn(batch, local.in_channels, *local.input_size).to(local.weight)
    steps = {
        "sleepconv": _layer_step(local, x.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)),
        "convolution": _layer_step(conv, x.to(memory_format=torch.channels_last)),
    }
    if unfold:
        steps["unfold + einsum"] = _layer_step(UnfoldEinsum2d(local), x)
    return steps


def inference_steps(local: LocallyConnected2d, batch: int) -> dict[str, _Step]:
    """Make forward passes of a slept layer: itself, with one filter per grid, as exported, and as one convolution."""
    Instant()(local)
    compact, conv = to_grid_convolutional(local), _channels_last(local.to_conv2d())
    x = torch.randn(batch, local.in_channels, *local.input_size)
    by_position = x.permute(2, 3, 0, 1).contiguous().permute(2, 3, 0, 1)
    by_channel = x.to(memory_format=torch.channels_last)

    def as_exported(x: Tensor) -> Tensor:
        with use_kernel("batched"):
            return compact(x)

    return {
        "sleepconv": _inference_step(local, by_position),
        "on grids": _inference_step(compact, by_position),
        "on grids, exported": _inference_step(as_exported, by_channel),
        "convolution": _inference_step(conv, by_channel),
    }


def _inference_step(layer: Callable[[Tensor], Tensor], x: Tensor) -> _Step:
    def step() -> None:
        with torch.inference_mode():
            layer(x)

    return step


def _channels_last(model: Any) -> nn.Module:
    return model.to(memory_format=torch.channels_last)


def _layer_step(layer: nn.Module, x: Tensor) -> _Step:
    x.requires_grad_()
    grad = torch.randn_like(layer(x))

    def step() -> None:
        x.grad = layer.weight.grad = None
        layer(x).backward(grad)

    return step


def jax_step(local: LocallyConnected2d, batch: int) -> _Step | None:
    """Make a pass of the same layer with JAX's compiled ``conv_general_dilated_local``; None without JAX."""
    try:
        import jax
        from jax import lax, numpy
    except ImportError:
        return None
    inputs = local.in_channels * local.kernel_size[0] * local.kernel_size[1]
    x = numpy.ones((batch, local.in_channels, *local.input_size))
    w = numpy.ones((local.out_channels, inputs, *local.output_size))
    padding = [(int(p), int(p)) for p in local.padding]

    def loss(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated_local(x, w, local.stride, padding, local.kernel_size).sum()

    gradients = jax.jit(jax.grad(loss, argnums=(0, 1)))
    return lambda: jax.block_until_ready(gradients(x, w))
