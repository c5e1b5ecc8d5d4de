"""A linear layer on tokens with a separate matrix for every patch."""

import torch
from jaxtyping import Float
from torch import Tensor


def per_patch_linear(
    z: Float[Tensor, "*batch patches in_features"],
    weight: Float[Tensor, "patches out_features in_features"],
    bias: Float[Tensor, "*patches out_features"] | None = None,
    *,
    position_major: bool = False,
) -> Float[Tensor, "*batch patches out_features"]:
    r"""Multiply every patch by its own matrix.

    .. math:: z'_{ij} = b_{(i)j} + \sum_k z_{ik}\, u_{i,kj}

    The step Z' = ZU of appendix A.4 of Pogodin et al. (2021), without its weight sharing: patch i has its own U. If all
    matrices are equal, the result is that of ``torch.nn.functional.linear``.

    Args:
        z: tokens, with any number of leading axes.
        weight: ``weight[i]`` is the matrix of patch i, as ``nn.Linear`` holds it (U transposed).
        bias: (out_features,), shared by the patches, or (patches, out_features).
        position_major: store the responses patch by patch, as the next per-patch layer reads them, instead of copying
            them to a contiguous tensor; ``.view(...)`` then fails on them.

    Returns:
        The responses, (*batch, patches, out_features).

    >>> per_patch_linear(torch.ones(1, 2, 3), torch.tensor([[[1.0, 1, 1]], [[2.0, 2, 2]]])).flatten().tolist()
    [3.0, 6.0]
    """
    check_tokens(z, weight, bias)
    by_patch = z.movedim(-2, 0)
    rows = by_patch.flatten(1, -2) if z.dim() > 2 else by_patch.unsqueeze(1)
    y = torch.bmm(rows, weight.mT) if bias is None else torch.baddbmm(bias.unsqueeze(-2), rows, weight.mT)
    y = y.reshape(*by_patch.shape[:-1], weight.shape[1]).movedim(0, -2)
    return y if position_major else y.contiguous()


def check_tokens(z: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Raise a ValueError unless tokens, weight and bias fit together."""
    if weight.dim() != 3:
        raise ValueError(
            f"expected a 3-dimensional weight (patches, out_features, in_features), got shape {tuple(weight.shape)}"
        )
    patches, out_features, in_features = weight.shape
    if z.dim() < 2 or tuple(z.shape[-2:]) != (patches, in_features):
        raise ValueError(
            f"tokens must have shape (..., {patches}, {in_features}), got {tuple(z.shape)}; every patch has its own "
            "weights, so another number of patches needs another layer"
        )
    if bias is not None and tuple(bias.shape) not in ((out_features,), (patches, out_features)):
        raise ValueError(
            f"bias must have shape ({out_features},), shared by the patches, or ({patches}, {out_features}), "
            f"got {tuple(bias.shape)}"
        )
