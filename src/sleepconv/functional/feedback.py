"""Layers whose backward pass has weights of its own: the products that they compute, and their autograd function."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from sleepconv.functional import operators


class Product(Protocol):
    """A product of an input and a weight, with the two products that backpropagation makes of its gradient.

    Attributes:
        spatial: whether the input is (batch, channels, *space), and not (batch, *patches, features).
    """

    spatial: ClassVar[bool]

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the responses."""

    def input_gradient(self, x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient with respect to ``x``, computed with ``weight``, in the memory layout of ``x``."""

    def weight_gradient(self, x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient with respect to ``weight``, of which only the shape counts."""


@dataclass(frozen=True)
class Convolution:
    """A convolution with zero padding that is the same on both sides."""

    spatial: ClassVar[bool] = True

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the responses."""
        return torch.convolution(x, weight, None, *self._geometry)

    def input_gradient(self, x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient with respect to ``x``."""
        return self._backward(grad, x, weight, [True, False, False])[0]

    def weight_gradient(self, x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient with respect to ``weight``."""
        return self._backward(grad, x, weight, [False, True, False])[1]

    @property
    def _geometry(self) -> tuple[Any, ...]:
        zeros = [0] * len(self.stride)
        return list(self.stride), list(self.padding), list(self.dilation), False, zeros, self.groups

    def _backward(self, grad: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]) -> Any:
        return torch.ops.aten.convolution_backward(grad, x, weight, None, *self._geometry, wanted)


@dataclass(frozen=True)
class LocallyConnectedProduct:
    """A locally connected layer; the arguments are those of ``operators.locally_connected``."""

    spatial: ClassVar[bool] = True

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int
    position_major: bool

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the responses."""
        return operators.apply(x, weight, self._geometry, self.position_major)

    def input_gradient(self, x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient with respect to ``x``."""
        return operators.input_gradient_like(x, grad, weight, self._geometry)

    def weight_gradient(self, x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient with respect to ``weight``."""
        return operators.weight_gradient_like(x, grad, weight, self._geometry)

    @property
    def _geometry(self) -> tuple[Any, ...]:
        return list(self.stride), list(self.padding), list(self.dilation), self.groups


@dataclass(frozen=True)
class Linear:
    """A linear layer, ``x @ weight.T``; with three axes of the weight, every patch has its own matrix."""

    spatial: ClassVar[bool] = False

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return the responses."""
        return torch.einsum("...pi,poi->...po", x, weight) if weight.dim() == 3 else x @ weight.mT

    def input_gradient(self, x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient with respect to ``x``."""
        return torch.einsum("...po,poi->...pi", grad, weight) if weight.dim() == 3 else grad @ weight

    def weight_gradient(self, x: Tensor, grad: Tensor, weight: Tensor) -> Tensor:
        """Return the gradient with respect to ``weight``."""
        if weight.dim() == 3:
            return torch.einsum("...po,...pi->poi", grad, x)
        return grad.reshape(-1, grad.shape[-1]).mT @ x.reshape(-1, x.shape[-1])


def with_feedback(product: Product, x: Tensor, weight: Tensor, feedback: Tensor) -> Tensor:
    r"""Compute a product forwards with ``weight`` and let its gradient go back with ``feedback``.

    .. math:: y = W x, \qquad \frac{\partial}{\partial x} \mathrel{:=} B^\top \delta, \qquad
        \frac{\partial}{\partial W} = \delta\, x^\top

    If ``feedback`` requires a gradient, it gets that of ``weight`` (Kolen and Pollack, 1994).

    >>> x = torch.ones(1, 1, requires_grad=True)
    >>> with_feedback(Linear(), x, torch.tensor([[2.0]]), torch.tensor([[5.0]])).backward()
    >>> x.grad.item()
    5.0
    """
    if not torch.is_grad_enabled():
        return product.forward(x, weight)
    return _WithFeedback.apply(product, x, weight, feedback)


def with_direct_feedback(
    product: Product, x: Tensor, weight: Tensor, feedback: Tensor, classes: int
) -> tuple[Tensor, Tensor]:
    r"""Compute a product whose input gets a projection of the network's output error.

    .. math:: y = W x, \qquad \frac{\partial}{\partial x} \mathrel{:=} B e, \qquad
        \frac{\partial}{\partial W} = \delta\, x^\top

    Nøkland (2016). The second result is zero, (batch, classes): added to the network's output, it receives the error e.

    Args:
        product: what is computed.
        x: the input, with a batch axis.
        weight: W.
        feedback: B, (*shape of one input with its channels last, classes).
        classes: the number of outputs of the network.

    >>> x = torch.ones(1, 1, requires_grad=True)
    >>> y, tap = with_direct_feedback(Linear(), x, torch.tensor([[2.0]]), torch.tensor([[5.0, 7.0]]), 2)
    >>> (tap * torch.tensor([[1.0, 10.0]])).sum().backward()
    >>> x.grad.item()
    75.0
    """
    return _WithDirectFeedback.apply(product, x, weight, feedback, classes)


class _WithFeedback(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, product: Product, x: Tensor, weight: Tensor, feedback: Tensor) -> Tensor:
        ctx.product = product
        ctx.save_for_backward(x, weight, feedback)
        return product.forward(x, weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, feedback = ctx.saved_tensors
        _, for_x, for_weight, for_feedback = ctx.needs_input_grad
        dx = ctx.product.input_gradient(x, grad, feedback) if for_x else None
        dw = ctx.product.weight_gradient(x, grad, weight) if for_weight or for_feedback else None
        return None, dx, dw if for_weight else None, dw if for_feedback else None


class _WithDirectFeedback(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, product: Product, x: Tensor, weight: Tensor, feedback: Tensor, classes: int
    ) -> tuple[Tensor, Tensor]:
        ctx.product = product
        ctx.save_for_backward(x, weight, feedback)
        return product.forward(x, weight), x.new_zeros(x.shape[0], classes)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, error: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, feedback = ctx.saved_tensors
        _, for_x, for_weight, _, _ = ctx.needs_input_grad
        dx = _projected(ctx.product, x, error, feedback) if for_x else None
        dw = ctx.product.weight_gradient(x, grad, weight) if for_weight else None
        return None, dx, dw, None, None


def _projected(product: Product, x: Tensor, error: Tensor, feedback: Tensor) -> Tensor:
    """Return B e in the shape and the memory layout of ``x``."""
    projected = (error @ feedback.flatten(0, -2).mT).unflatten(1, feedback.shape[:-1])
    projected = projected.movedim(-1, 1) if product.spatial else projected
    return projected if projected.stride() == x.stride() else torch.empty_like(x).copy_(projected)
