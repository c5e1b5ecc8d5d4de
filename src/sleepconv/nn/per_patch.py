"""The per-patch linear layer as a module."""

from math import sqrt
from typing import Literal, Self

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from sleepconv.functional.per_patch import per_patch_linear


class PerPatchLinear(nn.Module):
    r"""A linear layer on tokens without weight sharing: every patch has a matrix of its own.

    .. math:: z'_{ij} = b_{(i)j} + \sum_k z_{ik}\, u_{i,kj}

    Appendix A.4 of Pogodin et al. (2021): what a vision transformer or an MLP computes with one U for all patches. All
    patches form one grid: after a sleep the layer computes what a shared ``nn.Linear`` computes. The paper does not say
    how such a layer starts; weights are drawn as in ``nn.Linear``, which is how transformers start (uniform in
    ±1/√in_features), independently per patch.

    Args:
        in_features: as in ``nn.Linear``.
        out_features: as in ``nn.Linear``.
        num_patches: how many tokens the input has along the axis before the last.
        bias: True or "shared": one number per feature, as in ``nn.Linear``; "patch": one each; False: none. Sleep
            shares weights, not biases.
        init_noise: start all patches from one shared matrix, plus this much noise relative to its size.
        device: where the weights are.
        dtype: of the weights.

    Attributes:
        weight: (patches, out_features, in_features).
        bias: (out_features,), or (patches, out_features), or None.
        grids: who shares with whom in sleep: all patches.
        position_major: leave the responses in memory patch by patch, as the next per-patch layer reads them, instead of
            rearranging them; False, unless ``to_per_patch`` or ``keep_layout`` found that all modules that get them
            can handle it.

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
        num_patches: int,
        bias: bool | Literal["shared", "patch"] = True,
        init_noise: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if min(in_features, out_features, num_patches) < 1:
            raise ValueError(
                f"in_features={in_features}, out_features={out_features}, num_patches={num_patches}: all are at least 1"
            )
        if bias not in (True, False, "shared", "patch"):
            raise ValueError(f'bias is True or "shared" (by the patches), "patch" (one each) or False, not {bias!r}')
        self.in_features, self.out_features, self.num_patches = in_features, out_features, num_patches
        self.init_noise = init_noise
        self.weight = nn.Parameter(torch.empty(num_patches, out_features, in_features, device=device, dtype=dtype))
        shape = (num_patches, out_features) if bias == "patch" else (out_features,)
        own_bias = nn.Parameter(torch.empty(shape, device=device, dtype=dtype)) if bias else None
        self.register_parameter("bias", own_bias)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw the weights as ``nn.Linear`` does, every patch for itself.

        With ``init_noise`` every patch starts from one shared matrix drawn like that, plus noise of its own, which is
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
        """Which patches share with each other in their sleep: all are on one grid."""
        return torch.zeros(self.num_patches, dtype=torch.int64)

    def forward(self, z: Float[Tensor, "*batch patches in_features"]) -> Float[Tensor, "*batch patches out_features"]:
        """Respond to the tokens, every patch with its own weights."""
        return per_patch_linear(z, self.weight, self.bias, position_major=self.position_major)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        bias = "patch" if self.bias is not None and self.bias.dim() > 1 else self.bias is not None
        return f"{self.in_features}, {self.out_features}, num_patches={self.num_patches}, bias={bias}"

    @classmethod
    def from_linear(cls, linear: nn.Linear, num_patches: int) -> Self:
        """A layer that computes what ``linear`` computes: its matrix for every patch.

        >>> PerPatchLinear.from_linear(nn.Linear(3, 4), 5)
        PerPatchLinear(3, 4, num_patches=5, bias=True)
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"expected a Linear, got a {type(linear).__name__}")
        layer = cls(
            linear.in_features,
            linear.out_features,
            num_patches=num_patches,
            bias=linear.bias is not None,
            device="meta",
            dtype=linear.weight.dtype,
        ).to_empty(device=linear.weight.device)
        _copy(layer, linear, linear.weight, linear.bias)
        return layer

    def to_linear(self) -> nn.Linear:
        """The shared layer with the mean matrix."""
        linear = nn.Linear(
            self.in_features,
            self.out_features,
            bias=self.bias is not None,
            device="meta",
            dtype=self.weight.dtype,
        ).to_empty(device=self.weight.device)
        bias = self.bias.mean(0) if self.bias is not None and self.bias.dim() > 1 else self.bias
        _copy(linear, self, self.weight.mean(0), bias)
        return linear


@torch.no_grad()
def _copy(layer: nn.Module, source: nn.Module, weight: Tensor, bias: Tensor | None) -> None:
    """Give the layer these values; which of them are trained, and the mode, are the source's."""
    for name, value in {"weight": weight, "bias": bias}.items():
        if value is not None:
            parameter = layer.get_parameter(name)
            parameter.copy_(value).requires_grad_(source.get_parameter(name).requires_grad)
    layer.train(source.training)
