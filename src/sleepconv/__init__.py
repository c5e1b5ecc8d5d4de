"""Locally connected networks that become convolutional in their sleep."""

from sleepconv import functional, kernels

__all__ = ["functional", "kernels"]
