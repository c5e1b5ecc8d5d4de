"""Layers without weight sharing: locally connected ones in one to three dimensions, and the per-patch linear layer."""

from collections.abc import Callable, Iterable
from functools import cached_property
from math import prod, sqrt
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor, nn

from sleepconv.functional.grids import interior_neurons, lateral_grids
from sleepconv.functional.locally_connected import locally_connected1d, locally_connected2d, locally_connected3d
from sleepconv.functional.per_patch import per_patch_linear
from sleepconv.functional.sharing import neurons_per_grid
from sleepconv.functional.sizes import (
    Padding,
    Sides,
    Sizes,
    check_divisible,
    check_int,
    output_size,
    padding_sides,
    per_axis,
)
from sleepconv.nn.known_operations import guard_gradients

_Module = TypeVar("_Module", bound=nn.Module)

_PADDING_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


class LocallyConnected(nn.Module):
    """Base class of the one-, two- and three-dimensional layers; see ``LocallyConnected2d``.

    >>> from sleepconv.nn import LocallyConnected, LocallyConnected1d
    >>> isinstance(LocallyConnected1d(2, 4, 3, input_size=8), LocallyConnected)
    True
    """

    axes: ClassVar[int]
    convolution: ClassVar[Any]
    function: ClassVar[Callable[..., Tensor]]
    bias: nn.Parameter | None
    position_major: bool = False
    assigned_grids: Tensor | None = None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        *,
        input_size: Sizes,
        stride: Sizes = 1,
        padding: Padding = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool | Literal["shared", "neuron"] = True,
        padding_mode: str = "zeros",
        init_noise: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        axes = self.axes
        self.in_channels = check_int("in_channels", in_channels)
        self.out_channels = check_int("out_channels", out_channels)
        self.groups = check_int("groups", groups)
        check_divisible("in_channels", self.in_channels, "groups", self.groups)
        check_divisible("out_channels", self.out_channels, "groups", self.groups)
        check_choice("padding_mode", padding_mode, _PADDING_MODES)
        check_choice("bias", bias, (True, False, "shared", "neuron"))
        self.kernel_size = per_axis("kernel_size", kernel_size, axes)
        self.input_size = per_axis("input_size", input_size, axes)
        self.stride = per_axis("stride", stride, axes)
        self.padding = padding if isinstance(padding, str) else per_axis("padding", padding, axes, least=0)
        self.dilation = per_axis("dilation", dilation, axes)
        self.padding_mode = padding_mode
        geometry: Any = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        self.output_size = output_size(self.input_size, self.kernel_size, **geometry)
        self.init_noise = init_noise
        filter_shape = (self.out_channels, self.in_channels // self.groups, *self.kernel_size)
        self.weight = nn.Parameter(torch.empty(*self.output_size, *filter_shape, device=device, dtype=dtype))
        bias_shape = (self.out_channels, *self.output_size) if bias == "neuron" else (self.out_channels,)
        own_bias = nn.Parameter(torch.empty(bias_shape, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", own_bias)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Draw the weights from N(0, 2 / (c_out k²)), independently per neuron (appendix B of the paper).

        With ``init_noise``, every neuron starts from one shared filter drawn like that, plus independent noise of
        ``init_noise`` times that standard deviation.
        """
        std = sqrt(2 / (self.out_channels * prod(self.kernel_size)))
        if self.init_noise is None:
            self.weight.normal_(0, std)
        else:
            shared = torch.empty_like(self.weight[(0,) * self.axes]).normal_(0, std)
            self.weight.normal_(0, std * self.init_noise).add_(shared)
        if self.bias is not None:
            bound = 1 / sqrt(self.in_channels // self.groups * prod(self.kernel_size))
            self.bias.uniform_(-bound, bound)

    @property
    def grids(self) -> Int64[Tensor, "*output_size"]:
        """The lateral grid of each neuron (see ``lateral_grids``), as a new tensor on the CPU.

        Other grids, such as ``sleepconv.learn_grids`` returns, may be assigned; ``del layer.grids`` restores the first.
        They are not part of the ``state_dict``.
        """
        with torch.inference_mode(False):
            return (self._grids if self.assigned_grids is None else self.assigned_grids).clone()

    @grids.setter
    def grids(self, grids: Int64[Tensor, "*output_size"]) -> None:
        neurons_per_grid(self.weight, grids)
        self.assigned_grids = grids.detach().cpu().clone()

    @grids.deleter
    def grids(self) -> None:
        self.assigned_grids = None

    @cached_property
    def _grids(self) -> Int64[Tensor, "*output_size"]:
        with torch.inference_mode(False), torch.device("cpu"):
            return lateral_grids(self.output_size, self.kernel_size, self.stride, self.dilation)

    @property
    def interior(self) -> tuple[slice, ...]:
        """The neurons, along each axis, whose windows do not overlap the padding."""
        return interior_neurons(self.input_size, self.kernel_size, self.stride, self.dilation, padding=self.padding)

    def forward(self, input: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Apply its own filter at every output position."""
        x = input
        if tuple(x.shape[-self.axes :]) != self.input_size or x.dim() <= self.axes:
            raise ValueError(
                f"this layer was built for inputs of size {self.input_size}, but got shape {tuple(x.shape)}; every "
                "position has its own filter, so another size needs another layer"
            )
        if x.requires_grad and not x.is_contiguous() and not torch.compiler.is_compiling():
            guard_gradients(x)
        padding: Padding = self.padding
        if self.padding_mode != "zeros":
            sides = padding_sides(self.padding, self.kernel_size, self.stride, self.dilation)
            x, padding = extended(x, sides, self.padding_mode), 0
        return self._respond(x, padding)

    def _respond(self, x: Tensor, padding: Padding) -> Tensor:
        """Apply the filters to an input that needs this zero padding."""
        geometry: dict[str, Any] = {"stride": self.stride, "dilation": self.dilation, "groups": self.groups}
        geometry |= {"padding": padding, "position_major": self.position_major}
        return type(self).function(x, self.weight, self.bias, **geometry)

    def extra_repr(self) -> str:
        """Return the options that ``print`` shows."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"input_size={self.input_size}, output_size={self.output_size}, stride={self.stride}"
        )
        if self.padding not in (0, (0,) * self.axes):
            text += f", padding={self.padding!r}"
        if self.dilation != (1,) * self.axes:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        text += f", bias={'neuron' if self.bias is not None and self.bias.dim() > 1 else self.bias is not None}"
        return text + ("" if self.padding_mode == "zeros" else f", padding_mode={self.padding_mode!r}")

    @classmethod
    def _from_convolution(cls, conv: Any, input_size: Sizes) -> Self:
        if not isinstance(conv, cls.convolution):
            raise TypeError(f"expected a {cls.convolution.__name__}, got {type(conv).__name__}")
        names = ("stride", "padding", "dilation", "groups", "padding_mode")
        options: dict[str, Any] = {name: getattr(conv, name) for name in names}
        options |= {"bias": conv.bias is not None, "device": "meta", "dtype": conv.weight.dtype}
        layer = cls(conv.in_channels, conv.out_channels, conv.kernel_size, input_size=input_size, **options)
        return with_weights(layer, conv, conv.weight, conv.bias)

    def _to_convolution(self) -> Any:
        names = ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode")
        options: dict[str, Any] = {name: getattr(self, name) for name in names}
        options |= {"bias": self.bias is not None, "device": "meta", "dtype": self.weight.dtype}
        conv = self.convolution(self.in_channels, self.out_channels, **options)
        bias = self.bias.flatten(1).mean(1) if self.bias is not None and self.bias.dim() > 1 else self.bias
        return with_weights(conv, self, self.weight.mean(tuple(range(self.axes))), bias)


class LocallyConnected1d(LocallyConnected):
    """A layer with a separate filter at every position of a sequence; see ``LocallyConnected2d``.

    >>> LocallyConnected1d(2, 3, 3, input_size=10)(torch.randn(4, 2, 10)).shape
    torch.Size([4, 3, 8])
    """

    axes, convolution, function = 1, nn.Conv1d, staticmethod(locally_connected1d)

    @classmethod
    def from_conv1d(cls, conv: nn.Conv1d, input_size: Sizes) -> Self:
        """Return a layer that computes what ``conv`` does: its filter at every position."""
        return cls._from_convolution(conv, input_size)

    def to_conv1d(self) -> nn.Conv1d:
        """Return the convolution with the mean filter."""
        return self._to_convolution()


class LocallyConnected2d(LocallyConnected):
    r"""A convolution's connectivity without its weight sharing: every output position has its own filter.

    .. math:: z_{o,ij} = b_o + \sum_{c,u,v} w_{ij,ocuv}\; x_{c,\; i s + u d - p,\; j s + v d - p}

    Eq. 2 of Pogodin et al. (2021). Weights start from N(0, 2 / (c_out k²)), independent per neuron.

    Args:
        in_channels: as in ``nn.Conv2d``.
        out_channels: as in ``nn.Conv2d``.
        kernel_size: as in ``nn.Conv2d``.
        input_size: height and width of the input; every position has its own filter, so the layer serves one size.
        stride: as in ``nn.Conv2d``.
        padding: as in ``nn.Conv2d``.
        dilation: as in ``nn.Conv2d``.
        groups: as in ``nn.Conv2d``.
        bias: True or "shared": one per channel, as in a convolution; "neuron": one per neuron; False: none.
        padding_mode: as in ``nn.Conv2d``.
        init_noise: start all neurons from one shared filter, plus this much noise relative to its size.
        device: the device of the weights.
        dtype: the dtype of the weights.

    Attributes:
        weight: (out_height, out_width, out_channels, in_channels / groups, kernel_height, kernel_width).
        bias: (out_channels,), or (out_channels, out_height, out_width), or None.
        grids: the lateral grid of each neuron: who shares with whom in sleep; may be assigned.
        interior: the neurons that see no padding.
        position_major: store the responses position by position, as the next layer reads them, instead of copying
            them to a contiguous tensor; False unless ``to_locally_connected`` or ``keep_layout`` found that all
            operations that get them can handle it.

    >>> layer = LocallyConnected2d(3, 8, 3, input_size=(16, 16), padding=1)
    >>> layer(torch.randn(4, 3, 16, 16)).shape
    torch.Size([4, 8, 16, 16])
    >>> layer.weight.shape, layer.grids.unique().numel()
    (torch.Size([16, 16, 8, 3, 3, 3]), 9)
    """

    axes, convolution, function = 2, nn.Conv2d, staticmethod(locally_connected2d)

    @classmethod
    def from_conv2d(cls, conv: nn.Conv2d, input_size: Sizes) -> Self:
        """Return a layer that computes what ``conv`` does: its filter at every position."""
        return cls._from_convolution(conv, input_size)

    def to_conv2d(self) -> nn.Conv2d:
        """Return the convolution with the mean filter."""
        return self._to_convolution()


class LocallyConnected3d(LocallyConnected):
    """A layer with a separate filter at every position of a volume; see ``LocallyConnected2d``.

    >>> LocallyConnected3d(1, 2, 2, input_size=3, stride=1)(torch.randn(4, 1, 3, 3, 3)).shape
    torch.Size([4, 2, 2, 2, 2])
    """

    axes, convolution, function = 3, nn.Conv3d, staticmethod(locally_connected3d)

    @classmethod
    def from_conv3d(cls, conv: nn.Conv3d, input_size: Sizes) -> Self:
        """Return a layer that computes what ``conv`` does: its filter at every position."""
        return cls._from_convolution(conv, input_size)

    def to_conv3d(self) -> nn.Conv3d:
        """Return the convolution with the mean filter."""
        return self._to_convolution()


class PerPatchLinear(nn.Module):
    r"""A linear layer on tokens without weight sharing: every patch has its own matrix.

    .. math:: z'_{ij} = b_{(i)j} + \sum_k z_{ik}\, u_{i,kj}

    Appendix A.4 of Pogodin et al. (2021): what a vision transformer or an MLP computes with one U for all patches. All
    patches form one grid: after a sleep the layer computes what a shared ``nn.Linear`` does. The paper does not give
    an initialization; weights are drawn as in ``nn.Linear`` (uniform in ±1/√in_features), independently per patch.

    Args:
        in_features: as in ``nn.Linear``.
        out_features: as in ``nn.Linear``.
        num_patches: the number of tokens along the axis before the last; or their numbers along several axes, such as
            (height, width) of (batch, height, width, features).
        bias: True or "shared": one per feature, as in ``nn.Linear``; "patch": one per feature and patch; False: none.
            Sleep shares weights, not biases.
        init_noise: start all patches from one shared matrix, plus this much noise relative to its size.
        device: the device of the weights.
        dtype: the dtype of the weights.

    Attributes:
        weight: (patches, out_features, in_features).
        bias: (out_features,), or (patches, out_features), or None.
        grids: the grid of each patch: all share in sleep.
        position_major: store the responses patch by patch, as the next per-patch layer reads them, instead of copying
            them to a contiguous tensor; False unless ``to_per_patch`` or ``keep_layout`` found that all operations
            that get them can handle it.

    >>> layer = PerPatchLinear(8, 24, num_patches=16)
    >>> layer(torch.randn(4, 16, 8)).shape
    torch.Size([4, 16, 24])
    >>> layer.weight.shape, layer.grids.unique().numel()
    (torch.Size([16, 24, 8]), 1)
    """

    bias: nn.Parameter | None
    position_major: bool = False

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        num_patches: Sizes,
        bias: bool | Literal["shared", "patch"] = True,
        init_noise: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = check_int("in_features", in_features)
        self.out_features = check_int("out_features", out_features)
        listed = (num_patches,) if isinstance(num_patches, int) else tuple(num_patches)
        self.patches = tuple(check_int("num_patches", number) for number in listed)
        self.num_patches = prod(self.patches)
        check_choice("bias", bias, (True, False, "shared", "patch"))
        self.init_noise = init_noise
        self.weight = nn.Parameter(torch.empty(self.num_patches, out_features, in_features, device=device, dtype=dtype))
        shape = (self.num_patches, out_features) if bias == "patch" else (out_features,)
        own_bias = nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", own_bias)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the weights as ``nn.Linear`` does, independently per patch.

        With ``init_noise``, every patch starts from one shared matrix drawn like that, plus independent noise that is
        ``init_noise`` times as large.
        """
        bound = 1 / sqrt(self.in_features)
        if self.init_noise is None:
            self.weight.uniform_(-bound, bound)
        else:
            shared = torch.empty_like(self.weight[0]).uniform_(-bound, bound)
            self.weight.uniform_(-bound, bound).mul_(self.init_noise).add_(shared)
        if self.bias is not None:
            self.bias.uniform_(-bound, bound)

    @property
    def grids(self) -> Int64[Tensor, "patches"]:
        """The grid of each patch: all are on one grid."""
        return torch.zeros(self.num_patches, dtype=torch.int64)

    def forward(self, z: Float[Tensor, "... in_features"]) -> Float[Tensor, "... out_features"]:
        """Multiply every patch by its own matrix."""
        axes = len(self.patches)
        if axes == 1:
            return self._respond(z)
        if tuple(z.shape[-1 - axes : -1]) != self.patches:
            raise ValueError(
                f"this layer was built for tokens of shape {(*self.patches, self.in_features)}, but got shape "
                f"{tuple(z.shape)}; every patch has its own weights, so another size needs another layer"
            )
        return self._respond(z.flatten(-1 - axes, -2)).unflatten(-2, self.patches)

    def _respond(self, z: Tensor) -> Tensor:
        return per_patch_linear(z, self.weight, self.bias, position_major=self.position_major)

    def extra_repr(self) -> str:
        """Return the options that ``print`` shows."""
        bias = "patch" if self.bias is not None and self.bias.dim() > 1 else self.bias is not None
        numbers = self.patches if len(self.patches) > 1 else self.num_patches
        return f"{self.in_features}, {self.out_features}, num_patches={numbers}, bias={bias}"

    @classmethod
    def from_linear(cls, linear: nn.Linear, num_patches: Sizes) -> Self:
        """Return a layer that computes what ``linear`` does: its matrix for every patch.

        >>> PerPatchLinear.from_linear(nn.Linear(3, 4), 5)
        PerPatchLinear(3, 4, num_patches=5, bias=True)
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"expected a Linear, got {type(linear).__name__}")
        options: dict[str, Any] = {"bias": linear.bias is not None, "device": "meta", "dtype": linear.weight.dtype}
        layer = cls(linear.in_features, linear.out_features, num_patches=num_patches, **options)
        return with_weights(layer, linear, linear.weight, linear.bias)

    def to_linear(self) -> nn.Linear:
        """Return the shared layer with the mean matrix."""
        options: dict[str, Any] = {"bias": self.bias is not None, "device": "meta", "dtype": self.weight.dtype}
        bias = self.bias.mean(0) if self.bias is not None and self.bias.dim() > 1 else self.bias
        return with_weights(nn.Linear(self.in_features, self.out_features, **options), self, self.weight.mean(0), bias)


def extended(x: Tensor, sides: Sides, padding_mode: str) -> Tensor:
    """Pad the input by this many pixels before and behind each axis."""
    flat = [amount for side in reversed(sides) for amount in side]
    return F.pad(x, flat, mode=_PADDING_MODES[padding_mode]) if any(flat) else x


def check_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise a ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}")


@torch.no_grad()
def with_weights(layer: _Module, source: nn.Module, weight: Tensor, bias: Tensor | None) -> _Module:
    """Return the layer with these values, on their device, and as frozen and in the mode that the source is."""
    layer.to_empty(device=weight.device)
    for name, value in {"weight": weight, "bias": bias}.items():
        if value is not None:
            parameter = layer.get_parameter(name)
            parameter.copy_(value).requires_grad_(source.get_parameter(name).requires_grad)
    return layer.train(source.training)
