"""Batch normalisation that keeps the memory layout of locally connected layers."""

import torch
from torch import Tensor, nn


class LayoutKeepingBatchNorm2d(nn.BatchNorm2d):
    """``nn.BatchNorm2d``, also fast on responses that lie in memory as (height, width, batch, channels).

    Channel statistics do not care which axis is the batch: read as (height, channels, width, batch), such a tensor is
    an ordinary channels-last batch, for which PyTorch's own code is fast.

    >>> LayoutKeepingBatchNorm2d(3)(torch.randn(2, 3, 4, 4)).shape
    torch.Size([2, 3, 4, 4])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Normalise every channel."""
        if x.dim() == 4 and not x.is_contiguous():
            as_channels_last = x.permute(2, 1, 3, 0)
            if as_channels_last.is_contiguous(memory_format=torch.channels_last):
                return super().forward(as_channels_last).permute(3, 1, 0, 2)
        return super().forward(x)
