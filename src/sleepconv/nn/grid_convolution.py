"""A layer with one filter per lateral grid, for the inference of networks that have slept."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sleepconv.functional.on_grids import grid_convolution
from sleepconv.functional.sizes import Padding, Sizes, check_divisible, check_int, padding_sides, per_axis
from sleepconv.nn.modules import LocallyConnected, check_choice, extended, with_weights


class GridConvolution(nn.Module):
    """A convolution with one filter per lateral grid: what a locally connected layer computes after its sleep.

    It has the outputs of such a layer, k² filters for a k×k layer instead of one per neuron, and takes inputs of any
    size, as a convolution does. ``to_grid_convolutional`` makes it. ``torch.export``, ``torch.onnx`` and
    ``torch.jit.trace`` see plain convolutions. See ``sleepconv.functional.grid_convolution`` for the equation.

    Args:
        in_channels: as in ``nn.Conv2d``.
        out_channels: as in ``nn.Conv2d``.
        kernel_size: one to three ints, one per spatial axis.
        spacing: the distance of neighbouring neurons of a grid, one int or one per axis; the kernel size for stride 1.
        stride: as in ``nn.Conv2d``.
        padding: as in ``nn.Conv2d``.
        dilation: as in ``nn.Conv2d``.
        groups: as in ``nn.Conv2d``.
        bias: True: one per channel; False: none; a tuple: one per neuron of an output of this size.
        padding_mode: as in ``nn.Conv2d``.
        device: the device of the weights.
        dtype: the dtype of the weights.

    Attributes:
        weight: (*spacing, out_channels, in_channels / groups, *kernel_size).
        bias: (out_channels,), or (out_channels, *output_size), or None.
        position_major: as in ``LocallyConnected2d``; has an effect only where the native kernel computes.

    >>> layer = GridConvolution(3, 8, (3, 3), spacing=3, padding=1)
    >>> layer(torch.randn(4, 3, 16, 16)).shape, layer.weight.shape
    (torch.Size([4, 8, 16, 16]), torch.Size([3, 3, 8, 3, 3, 3]))
    """

    bias: nn.Parameter | None
    position_major: bool = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sequence[int],
        *,
        spacing: Sizes,
        stride: Sizes = 1,
        padding: Padding = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool | tuple[int, ...] = True,
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] | str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if isinstance(kernel_size, int) or not 1 <= len(kernel_size) <= 3:
            raise ValueError(f"`kernel_size` must have one to three ints, one per spatial axis, got {kernel_size!r}")
        axes = len(kernel_size)
        self.in_channels, self.out_channels = (
            check_int(name, value) for name, value in [("in_channels", in_channels), ("out_channels", out_channels)]
        )
        self.groups = check_int("groups", groups)
        check_divisible("in_channels", self.in_channels, "groups", self.groups)
        check_divisible("out_channels", self.out_channels, "groups", self.groups)
        check_choice("padding_mode", padding_mode, ("zeros", "reflect", "replicate", "circular"))
        self.kernel_size = per_axis("kernel_size", kernel_size, axes)
        self.spacing, self.stride = per_axis("spacing", spacing, axes), per_axis("stride", stride, axes)
        self.dilation = per_axis("dilation", dilation, axes)
        self.padding = padding if isinstance(padding, str) else per_axis("padding", padding, axes, least=0)
        self.padding_mode = padding_mode
        filter_shape = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self.weight = nn.Parameter(torch.empty(*self.spacing, *filter_shape, device=device, dtype=dtype))
        shape = (self.out_channels, *(bias if isinstance(bias, tuple) else ()))
        own_bias = nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", own_bias)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw weights and biases as ``nn.Conv2d`` does, independently per grid."""
        bound = 1 / (self.weight[(0,) * len(self.spacing)][0].numel() ** 0.5)
        for parameter in self.parameters():
            parameter.uniform_(-bound, bound)

    def forward(self, input: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Apply at every output position the filter of its grid."""
        x = input
        padding: Padding = self.padding
        if self.padding_mode != "zeros":
            sides = padding_sides(self.padding, self.kernel_size, self.stride, self.dilation)
            x, padding = extended(x, sides, self.padding_mode), 0
        geometry: dict[str, Any] = {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}
        geometry |= {"padding": padding, "position_major": self.position_major}
        return grid_convolution(x, self.weight, self.bias, **geometry)

    def extra_repr(self) -> str:
        """Return the options that ``print`` shows."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, spacing={self.spacing}"
        text += f", stride={self.stride}"
        if self.padding not in (0, (0,) * len(self.spacing)):
            text += f", padding={self.padding!r}"
        if self.dilation != (1,) * len(self.spacing):
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        text += f", bias={tuple(self.bias.shape[1:]) or True if self.bias is not None else False}"
        return text + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode!r}")

    @classmethod
    def from_locally_connected(cls, layer: LocallyConnected, spacing: Sequence[int]) -> "GridConvolution":
        """Return the layer whose filters are the means of those that are ``spacing`` apart."""
        names = ("stride", "padding", "dilation", "groups", "padding_mode")
        options: dict[str, Any] = {name: getattr(layer, name) for name in names}
        options["bias"] = layer.bias is not None and (tuple(layer.bias.shape[1:]) or True)
        options |= {"spacing": spacing, "device": "meta", "dtype": layer.weight.dtype}
        new = cls(layer.in_channels, layer.out_channels, layer.kernel_size, **options)
        new.position_major = layer.position_major
        return with_weights(new, layer, grid_means(layer.weight, spacing), layer.bias)


@torch.no_grad()
def grid_means(weight: Tensor, spacing: Sequence[int]) -> Tensor:
    """Return the mean filter of each grid, (*spacing, *filter); equal filters have exactly themselves as their mean.

    >>> grid_means(torch.tensor([1.0, 5.0, 3.0]), [2])
    tensor([2., 5.])
    """
    if not spacing:
        return weight
    step, double = spacing[0], torch.float64
    rows = [grid_means(weight[phase::step].mean(0, dtype=double), spacing[1:]) for phase in range(step)]
    return torch.stack(rows).to(weight.dtype)
