"""Conversion of whole models to learning without weight transport, and back."""

import copy
from collections import Counter
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from sleepconv.names import did_you_mean
from sleepconv.nn.dry_run import rehearse
from sleepconv.wake.feedback_layers import COUNTERPARTS, FeedbackLayer, Taps
from sleepconv.wake.wake_rules import RULES, DirectFeedbackAlignment, Seen, WakeRule

_NO_TRANSPORT = (nn.Embedding, nn.EmbeddingBag)  # their inputs are numbers of rows, which have no gradient
_WRAPPERS = (torch.jit.ScriptModule, nn.DataParallel, nn.parallel.DistributedDataParallel)


def without_weight_transport(
    model: nn.Module,
    rule: WakeRule | str,
    *,
    sample_input: Tensor | tuple[Any, ...] | dict[str, Any] | None = None,
    share_in_sleep: bool = True,
    exclude: Collection[str] = (),
    inplace: bool = False,
) -> nn.Module:
    """Let a model learn without weight transport: its errors go back through feedback weights of their own.

    Convert to locally connected layers first, and build the optimizer afterwards. The model computes what it did;
    ``loss.backward()`` gives every weight the gradient that the rule says, and any optimizer can use it. Every
    convolution, locally connected, linear and per-patch layer gets feedback weights, grouped and dilated ones too. A
    layer that is used several times has one set of them. What has no weights between neurons learns by backpropagation:
    normalisation with its gains, nonlinearities, pooling, shortcuts, biases and embeddings.

    Anything else with weights is refused by name, so that no model is converted by half: recurrent and attention
    modules, transposed convolutions, layers whose weight is parametrized or tied, classes that override how a layer
    computes, and parameters of two axes or more that a module uses by itself. ``exclude`` lets these, knowingly, learn
    by backpropagation. A use of a layer's weight outside the layer, as in ``F.linear(x, layer.weight)``, cannot be seen
    from here and is backpropagation: call the layer.

    Args:
        model: any model, convolutional or locally connected, or a layer.
        rule: one of the rules of ``sleepconv.wake``, or its name, such as "kolen_pollack".
        sample_input: one batch as the model will see it; only direct feedback alignment needs it.
        share_in_sleep: whether sleep shares the feedback weights of locally connected and per-patch layers too.
        exclude: names of modules or parameters that learn by backpropagation, with all that is inside them.
        inplace: change ``model`` itself instead of a copy.

    Returns:
        The model with feedback weights.

    >>> import sleepconv
    >>> from sleepconv.wake import KolenPollack
    >>> model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(36 * 4, 2))
    >>> model = sleepconv.to_locally_connected(model, torch.randn(1, 1, 8, 8))
    >>> model = without_weight_transport(model, KolenPollack())
    >>> model[0].feedback.weight.shape == model[0].weight.shape
    True
    >>> list(sleepconv.sleep.sleeping_layers(model))
    ['0', '0.feedback']
    """
    made = _named_rule(rule)
    if isinstance(model, _WRAPPERS):
        raise TypeError(f"convert the plain model before it becomes a {type(model).__name__}")
    chosen = _convertible(model, exclude)
    if not inplace:
        model = copy.deepcopy(model)
    layers = {name: model.get_submodule(name) for name in chosen}
    seen = _seen(model, layers, made, sample_input, share_in_sleep)
    feedbacks = {name: made.feedback(layer, seen[name]) for name, layer in layers.items()}
    for name, layer in layers.items():
        layer.__class__ = COUNTERPARTS[type(layer)]
        layer.feedback = feedbacks[name].train(layer.training)
    return model


def with_weight_transport(model: nn.Module, *, inplace: bool = False) -> nn.Module:
    """Undo ``without_weight_transport``: remove the feedback weights and learn by backpropagation.

    >>> model = without_weight_transport(nn.Linear(4, 3), "kolen_pollack")
    >>> with_weight_transport(model)
    Linear(in_features=4, out_features=3, bias=True)
    """
    model = model if inplace else copy.deepcopy(model)
    plain: dict[type[nn.Module], type[nn.Module]] = {feedback: layer for layer, feedback in COUNTERPARTS.items()}
    layers: list[nn.Module] = [layer for layer in model.modules() if isinstance(layer, FeedbackLayer)]
    for layer in layers:
        del layer.feedback
        layer.__class__ = plain[type(layer)]
    for hooks in [hooks for m in model.modules() for hooks in (m._forward_pre_hooks, m._forward_hooks)]:
        for key, hook in list(hooks.items()):
            if isinstance(getattr(hook, "__self__", None), Taps):
                del hooks[key]
    return model


def _named_rule(rule: WakeRule | str) -> WakeRule:
    if isinstance(rule, str):
        if rule not in RULES:
            raise ValueError(f"there is no rule {rule!r}{did_you_mean(rule, RULES)}")
        return RULES[rule]()
    if isinstance(rule, type) or not hasattr(rule, "feedback"):
        raise TypeError(f"`rule` must be a rule such as KolenPollack(), or its name, got {rule!r}")
    return rule


def _convertible(model: nn.Module, exclude: Collection[str]) -> list[str]:
    """Return the names of the layers to convert; raise a ValueError that names what cannot be."""
    if isinstance(exclude, str):
        raise TypeError(f"`exclude` must be a list of names, got the string {exclude!r}; use [{exclude!r}]")
    known = {*dict(model.named_modules()), *dict(model.named_parameters())}
    if unknown := [name for name in exclude if name not in known]:
        raise ValueError(f"`exclude`: the model has no module or parameter {unknown[0]!r}")
    owners = Counter(id(p) for m in model.modules() for p in m._parameters.values() if p is not None)
    chosen = []
    for name, module in model.named_modules():
        if _is_inside(name, exclude):
            continue
        if problem := _problem(name, module, owners, exclude):
            raise ValueError(
                f"{name or 'the model itself'} ({type(module).__name__}) cannot learn without weight transport: "
                f"{problem}"
            )
        if type(module) in COUNTERPARTS:
            chosen.append(name)
    if not chosen:
        raise ValueError("nothing to convert: the model has no convolution, locally connected or linear layer")
    return chosen


def _is_inside(name: str, parents: Collection[str]) -> bool:
    return any(name == parent or name.startswith(f"{parent}.") or parent == "" for parent in parents)


def _problem(name: str, module: nn.Module, owners: Counter[int], exclude: Collection[str]) -> str | None:
    exclusion = f"or exclude={[name]}, and it learns by backpropagation"
    if isinstance(module, FeedbackLayer):
        return "it has feedback weights already; call with_weight_transport first"
    if parametrize.is_parametrized(module) or (
        isinstance(module, tuple(COUNTERPARTS)) and not isinstance(module._parameters.get("weight"), nn.Parameter)
    ):
        return f"its weight is parametrized (weight_norm, pruning, ...); remove the parametrization, {exclusion}"
    own = {key: value for key, value in module._parameters.items() if value is not None}
    if any(map(is_lazy, own.values())):
        return "it is lazy and has no weights yet; run model(sample) once, then convert"
    if type(module) in COUNTERPARTS and "forward" not in vars(module):
        tied = owners[id(own["weight"])] > 1
        return f"its weight is tied to another module's; untie them, {exclusion}" if tied else None
    if isinstance(module, tuple(COUNTERPARTS)):
        return f"it or its class may override how the layer computes; use the plain layer, {exclusion}"
    if isinstance(module, _NO_TRANSPORT):
        return None
    prefix = f"{name}." if name else ""
    weights = [prefix + key for key, value in own.items() if value.dim() > 1 and prefix + key not in exclude]
    if weights:
        unknown = ", ".join(weights)
        return f"no rule knows what it does with {unknown}; exclude={weights} if these may learn by backpropagation"
    return None


def _seen(
    model: nn.Module, layers: dict[str, nn.Module], rule: WakeRule, sample_input: Any, share_in_sleep: bool
) -> dict[str, Seen]:
    """Return what the rule may know of each layer; for direct feedback, run the model and add its hooks."""
    if not isinstance(rule, DirectFeedbackAlignment):
        return dict.fromkeys(layers, Seen(share_in_sleep))
    if sample_input is None:
        raise ValueError(
            "direct feedback alignment needs the sizes of all inputs and of the output: pass one batch as sample_input"
        )
    shapes: dict[str, list[torch.Size]] = {name: [] for name in layers}
    handles = [
        layer.register_forward_pre_hook(lambda module, inputs, name=name: shapes[name].append(inputs[0].shape))
        for name, layer in layers.items()
    ]
    try:
        output = rehearse(model, sample_input)
    finally:
        for handle in handles:
            handle.remove()
    _check_direct(shapes, output)
    taps = Taps()
    model.register_forward_pre_hook(taps.open)
    model.register_forward_hook(taps.close)
    return {name: Seen(share_in_sleep, tuple(seen[0][1:]), output[0].numel(), taps) for name, seen in shapes.items()}


def _check_direct(shapes: dict[str, list[torch.Size]], output: Any) -> None:
    """Raise a ValueError unless every layer sees one input per output of the model."""
    if not isinstance(output, Tensor) or output.dim() < 2:
        got = f"shape {tuple(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
        raise ValueError(f"direct feedback alignment needs a model that returns a tensor (batch, outputs), got {got}")
    for name, seen in shapes.items():
        if len(seen) != 1:
            times = "not at all" if not seen else f"{len(seen)} times"
            raise ValueError(
                f"{name or 'the model itself'} cannot learn by direct feedback alignment: it is used {times} in a pass "
                "through the model, not once; use a separate module each time, or exclude it"
            )
        if seen[0][0] != len(output) or len(seen[0]) < 2:
            raise ValueError(
                f"{name or 'the model itself'} cannot learn by direct feedback alignment: its input has shape "
                f"{tuple(seen[0])}, so its first axis is not the batch of {len(output)}; exclude it"
            )
