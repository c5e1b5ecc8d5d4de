"""Beside any module or function of PyTorch, our layers give the values and the gradients that convolutions give.

Each of them stands in front of, behind, between and beside our layers, which compute what convolutions compute; all is
compared in float64, so that only numbers in the wrong place make a difference. ``pytest --sweep`` tries all batches,
modes and numbers of axes; without it, a choice of them.
"""

import copy
import itertools
from math import prod

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from sleepconv import to_locally_connected
from sleepconv.nn import LocallyConnected
from sleepconv.nn.layout import forget_layout

SIZES = {1: (8,), 2: (6, 8), 3: (4, 2, 6)}  # what the neighbours get, with four channels
CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
PLACES = ("in front", "behind", "between", "beside", "beside a convolution", "between, by hand")
RARELY = 1e-9  # drops nothing, but goes the way of dropout

pytestmark = pytest.mark.filterwarnings("ignore")


def made_up(*shape: int) -> Tensor:
    """Numbers without any pattern, the same in every call."""
    return torch.sin(torch.arange(prod(shape), dtype=torch.float64) ** 2 + 1).view(shape)


def like(y: Tensor) -> Tensor:
    return made_up(*y.shape)


def classes(y: Tensor) -> Tensor:
    return torch.arange(y.shape[0] * prod(y.shape[2:])).view(y.shape[0], *y.shape[2:]) % y.shape[1]


def samples(y: Tensor) -> Tensor:
    """Where fractional max pooling puts its windows."""
    return like(y[..., 0].flatten(2)[..., :1]).abs().expand(-1, -1, y.dim() - 2)


def signs(y: Tensor) -> Tensor:
    return like(y).sign()


# What to call for a response y: (modules' arguments) or (functions of y). Names with {} stand for 1d, 2d and 3d.
MODULES = {
    "AdaptiveAvgPool{}d": (2,), "AdaptiveMaxPool{}d": (2,), "AlphaDropout": (RARELY,), "AvgPool{}d": (2,),
    "BatchNorm{}d": (4,), "CELU": (), "ChannelShuffle": (2,), "CircularPad{}d": (1,), "ConstantPad{}d": (1, 0.5),
    "Conv{}d": (4, 4, 1), "ConvTranspose{}d": (4, 4, 2), "CrossMapLRN2d": (2,), "Dropout": (RARELY,),
    "Dropout{}d": (RARELY,), "ELU": (), "FeatureAlphaDropout": (RARELY,), "Flatten": (), "Fold": ((3, 4), (2, 1)),
    "GELU": (), "GLU": (1,), "GRU": (8, 5), "GroupNorm": (2, 4), "Hardshrink": (), "Hardsigmoid": (), "Hardswish": (),
    "Hardtanh": (), "Identity": (), "InstanceNorm{}d": (4,), "LPPool{}d": (2, 2), "LSTM": (8, 5), "LayerNorm": (8,),
    "LeakyReLU": (), "Linear": (8, 5), "LocalResponseNorm": (2,), "LogSigmoid": (), "LogSoftmax": (1,),
    "MaxPool{}d": (2,), "Mish": (), "PReLU": (4,), "PixelShuffle": (2,), "PixelUnshuffle": (2,), "RMSNorm": (8,),
    "RNN": (8, 5), "RReLU": (0.2, 0.2), "ReLU": (), "ReLU6": (), "ReflectionPad{}d": (1,), "ReplicationPad{}d": (1,),
    "SELU": (), "SiLU": (), "Sigmoid": (), "Softmax": (1,), "Softmax2d": (), "Softmin": (1,), "Softplus": (),
    "Softshrink": (), "Softsign": (), "Tanh": (), "Tanhshrink": (), "Threshold": (0.1, 0.2),
    "TransformerEncoderLayer": (8, 2, 16, 0.0), "Unflatten": (1, (2, 2)), "Unfold": (2,), "Upsample": (None, 2),
    "UpsamplingBilinear2d": (None, 2), "UpsamplingNearest2d": (None, 2), "ZeroPad{}d": (1,),
}  # fmt: skip
TWO_ARGUMENTS = {
    "BCEWithLogitsLoss": lambda m, y: m(y, like(y).abs()), "BCELoss": lambda m, y: m(y.sigmoid(), like(y).abs()),
    "CosineSimilarity": lambda m, y: m(y, like(y)), "CrossEntropyLoss": lambda m, y: m(y, classes(y)),
    "GaussianNLLLoss": lambda m, y: m(y, like(y), like(y).abs() + 0.1),
    "HingeEmbeddingLoss": lambda m, y: m(y, signs(y)), "HuberLoss": lambda m, y: m(y, like(y)),
    "KLDivLoss": lambda m, y: m(y, like(y).abs()), "L1Loss": lambda m, y: m(y, like(y)),
    "MSELoss": lambda m, y: m(y, like(y)), "MarginRankingLoss": lambda m, y: m(y, like(y), signs(y)),
    "MultiLabelSoftMarginLoss": lambda m, y: m(y, like(y).abs().round()),
    "NLLLoss": lambda m, y: m(y, classes(y)), "NLLLoss2d": lambda m, y: m(y, classes(y)),
    "PairwiseDistance": lambda m, y: m(y, like(y)), "PoissonNLLLoss": lambda m, y: m(y, like(y).abs()),
    "SmoothL1Loss": lambda m, y: m(y, like(y)), "SoftMarginLoss": lambda m, y: m(y, signs(y)),
    "TripletMarginLoss": lambda m, y: m(y, like(y), like(y).flip(0, 1)),
    "TripletMarginWithDistanceLoss": lambda m, y: m(y, like(y), like(y).flip(0, 1)),
}  # fmt: skip
WITH_STATE = {
    "Bilinear": lambda: (nn.Bilinear(8, 8, 5), lambda m, y: m(y, y)),
    "MaxUnpool1d": lambda: (nn.MaxUnpool1d(2), lambda m, y: m(*F.max_pool1d(y, 2, return_indices=True))),
    "MaxUnpool2d": lambda: (nn.MaxUnpool2d(2), lambda m, y: m(*F.max_pool2d(y, 2, return_indices=True))),
    "MaxUnpool3d": lambda: (nn.MaxUnpool3d(2), lambda m, y: m(*F.max_pool3d(y, 2, return_indices=True))),
    "FractionalMaxPool2d": lambda: (nn.FractionalMaxPool2d(2, 3), lambda m, y: fixed(m, y)),
    "FractionalMaxPool3d": lambda: (nn.FractionalMaxPool3d((2, 1, 2), (2, 1, 2)), lambda m, y: fixed(m, y)),
    "MultiheadAttention": lambda: (nn.MultiheadAttention(8, 2), lambda m, y: m(y, y, y)[0]),
    "Transformer": lambda: (nn.Transformer(8, 2, 1, 1, 16, 0.0), lambda m, y: m(y, y)),
    "TransformerDecoder": lambda: (nn.TransformerDecoder(decoder_layer(), 1), lambda m, y: m(y, y)),
    "TransformerDecoderLayer": lambda: (decoder_layer(), lambda m, y: m(y, y)),
    "TransformerEncoder": lambda: (nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0), 1), plainly),
}
FUNCTIONS = {
    "adaptive_avg_pool{}d": (2,), "adaptive_max_pool{}d": (2,), "adaptive_max_pool{}d_with_indices": (2,),
    "alpha_dropout": (RARELY, True), "avg_pool{}d": (2,), "batch_norm": (None, None, None, None, True),
    "bilinear": lambda y: F.bilinear(y, y, made_up(5, y.shape[-1], y.shape[-1])),
    "binary_cross_entropy": lambda y: F.binary_cross_entropy(y.sigmoid(), like(y).abs()),
    "binary_cross_entropy_with_logits": lambda y: F.binary_cross_entropy_with_logits(y, like(y).abs()),
    "celu": (), "celu_": (), "channel_shuffle": (2,), "conv1d": (made_up(4, 4, 1),), "conv2d": (made_up(4, 4, 1, 1),),
    "conv3d": (made_up(4, 4, 1, 1, 1),), "conv_tbc": (made_up(2, 8, 5), made_up(5)),
    "conv_transpose1d": (made_up(4, 4, 2),), "conv_transpose2d": (made_up(4, 4, 2, 2),),
    "conv_transpose3d": (made_up(4, 4, 2, 2, 2),), "cosine_similarity": lambda y: F.cosine_similarity(y, like(y)),
    "cross_entropy": lambda y: F.cross_entropy(y, classes(y)), "dropout": (RARELY, True),
    "dropout{}d": (RARELY, True), "elu": (), "elu_": (), "feature_alpha_dropout": (RARELY, True),
    "fold": ((3, 4), (2, 1)), "fractional_max_pool2d": lambda y: fixed(nn.FractionalMaxPool2d(2, 3), y),
    "fractional_max_pool2d_with_indices": lambda y: fixed(nn.FractionalMaxPool2d(2, 3, return_indices=True), y),
    "fractional_max_pool3d": lambda y: fixed(nn.FractionalMaxPool3d((2, 1, 2), (2, 1, 2)), y),
    "fractional_max_pool3d_with_indices": lambda y: fixed(nn.FractionalMaxPool3d(1, (2, 1, 2), return_indices=True), y),
    "gaussian_nll_loss": lambda y: F.gaussian_nll_loss(y, like(y), like(y).abs() + 0.1), "gelu": (), "glu": (1,),
    "grid_sample": lambda y: F.grid_sample(y, made_up(y.shape[0], *y.shape[2:], y.dim() - 2), align_corners=False),
    "group_norm": (2,), "gumbel_softmax": (), "hardshrink": (), "hardsigmoid": (), "hardswish": (), "hardtanh": (),
    "hardtanh_": (), "hinge_embedding_loss": lambda y: F.hinge_embedding_loss(y, signs(y)),
    "huber_loss": lambda y: F.huber_loss(y, like(y)), "instance_norm": (), "interpolate": (None, 2),
    "kl_div": lambda y: F.kl_div(y, like(y).abs()), "l1_loss": lambda y: F.l1_loss(y, like(y)), "layer_norm": ((8,),),
    "leaky_relu": (), "leaky_relu_": (), "linear": (made_up(5, 8),), "local_response_norm": (2,),
    "log_softmax": (1,), "logsigmoid": (), "lp_pool{}d": (2, 2),
    "margin_ranking_loss": lambda y: F.margin_ranking_loss(y, like(y), signs(y)), "max_pool{}d": (2,),
    "max_pool{}d_with_indices": (2,),
    "max_unpool1d": lambda y: F.max_unpool1d(*F.max_pool1d(y, 2, return_indices=True), 2),
    "max_unpool2d": lambda y: F.max_unpool2d(*F.max_pool2d(y, 2, return_indices=True), 2),
    "max_unpool3d": lambda y: F.max_unpool3d(*F.max_pool3d(y, 2, return_indices=True), 2), "mish": (),
    "mse_loss": lambda y: F.mse_loss(y, like(y)),
    "multilabel_soft_margin_loss": lambda y: F.multilabel_soft_margin_loss(y, like(y).abs().round()),
    "nll_loss": lambda y: F.nll_loss(y, classes(y)), "normalize": (), "pad": ((1, 1),),
    "pairwise_distance": lambda y: F.pairwise_distance(y, like(y)), "pixel_shuffle": (2,), "pixel_unshuffle": (2,),
    "poisson_nll_loss": lambda y: F.poisson_nll_loss(y, like(y).abs()), "prelu": (made_up(4),), "relu": (),
    "relu6": (), "relu_": (), "rms_norm": ((8,),), "rrelu": (0.2, 0.2, True), "rrelu_": (0.2, 0.2, True),
    "scaled_dot_product_attention": lambda y: F.scaled_dot_product_attention(y, y, y), "selu": (), "selu_": (),
    "sigmoid": (), "silu": (), "smooth_l1_loss": lambda y: F.smooth_l1_loss(y, like(y)),
    "soft_margin_loss": lambda y: F.soft_margin_loss(y, signs(y)), "softmax": (1,), "softmin": (1,), "softplus": (),
    "softshrink": (), "softsign": (), "tanh": (), "tanhshrink": (), "threshold": (0.1, 0.2), "threshold_": (0.1, 0.2),
    "triplet_margin_loss": lambda y: F.triplet_margin_loss(y, like(y), like(y).flip(0, 1)),
    "triplet_margin_with_distance_loss": lambda y: F.triplet_margin_with_distance_loss(y, like(y), y.flip(0, 1)),
    "unfold": (2,), "upsample": (None, 2), "upsample_bilinear": (None, 2), "upsample_nearest": (None, 2),
}  # fmt: skip
OPERATIONS = {
    "add_": lambda y: y.add_(1), "cat": lambda y: torch.cat([y, y.flip(0)], 1), "chunk": lambda y: y.chunk(2, 1)[0],
    "clamp": lambda y: y.clamp(-0.5, 0.5), "clone": lambda y: y.clone(), "contiguous": lambda y: y.contiguous(),
    "exp": lambda y: y.exp(), "index": lambda y: y[:, 1:], "mean": lambda y: y.mean(tuple(range(2, y.dim()))),
    "mean of batch": lambda y: y.mean(0, keepdim=True).expand_as(y), "mean of channels": lambda y: y * y.mean(1, True),
    "mul_": lambda y: y.mul_(2), "permute": lambda y: y.movedim(1, -1), "roll": lambda y: y.roll(1, -1),
    "square": lambda y: y.square(), "squeeze and excite": lambda y: y * y.mean((-1,), True).mean((-2,), True).sigmoid(),
    "transpose": lambda y: y.transpose(-1, -2), "unbind": lambda y: torch.stack(y.unbind(1), 1),
    "view": lambda y: y.view(y.shape[0], -1), "view channels": lambda y: y.view(-1, 2, *y.shape[2:]),
    "view positions": lambda y: y.view(*y.shape[:2], -1),
}  # fmt: skip
NOT_FOR_RESPONSES = {
    *("AdaptiveLogSoftmaxWithLoss", "CTCLoss", "CosineEmbeddingLoss", "LinearCrossEntropyLoss", "MultiLabelMarginLoss"),
    *("MultiMarginLoss", "GRUCell", "LSTMCell", "RNNCell"),  # take one or two axes, or other arguments
    *("Embedding", "EmbeddingBag"),  # take indices
    *("Container", "Module", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "RNNBase", "RNNCellBase"),
    *("Sequential", "DataParallel"),  # hold other modules
    "SyncBatchNorm",  # for GPUs
    *("affine_grid", "ctc_loss", "embedding", "embedding_bag", "grouped_mm", "linear_cross_entropy", "one_hot"),
    *("cosine_embedding_loss", "multi_margin_loss", "multilabel_margin_loss", "pdist", "scaled_grouped_mm"),
    "scaled_mm",
    "multi_head_attention_forward",  # nn.MultiheadAttention's
    "native_channel_shuffle",  # has no derivative
    *("Optional", "assert_int_or_pair", "boolean_dispatch", "handle_torch_function", "has_torch_function"),
    *("has_torch_function_unary", "has_torch_function_variadic"),  # no functions of tensors
}


def fixed(pool: nn.Module, y: Tensor) -> Tensor:
    """Fractional max pooling without its chance."""
    pool = copy.deepcopy(pool)
    pool._random_samples = samples(y)
    return pool(y)


def decoder_layer() -> nn.Module:
    return nn.TransformerDecoderLayer(8, 2, 16, 0.0)


def plainly(neighbour, y):
    return neighbour(y)


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function, *arguments):
        super().__init__()
        self.function, self.arguments = function, arguments

    def forward(self, y):
        return self.function(y, *self.arguments)


def expanded(table, home):
    """The table with a row for each of 1d, 2d and 3d, as far as this version of PyTorch has them."""
    rows = ((name.format(n), value) for name, value in table.items() for n in (1, 2, 3))
    return {name: value for name, value in rows if hasattr(home, name)}


def neighbours():
    """By name: what makes the module, and how to call it."""
    rows = {}
    for name, arguments in expanded(MODULES, nn).items():
        rows[name] = lambda name=name, arguments=arguments: (getattr(nn, name)(*arguments), plainly)
    for name, call in expanded(TWO_ARGUMENTS, nn).items():
        rows[name] = lambda name=name, call=call: (getattr(nn, name)(), call)
    rows |= WITH_STATE
    for name, what in expanded(FUNCTIONS, F).items():
        call = (what,) if callable(what) else (getattr(F, name), *what)
        rows[f"F.{name}"] = lambda call=call: (Call(*call), plainly)
    return rows | {name: lambda function=function: (Call(function), plainly) for name, function in OPERATIONS.items()}


NEIGHBOURS = neighbours()


class Network(nn.Module):
    """A neighbour in one of the places; what is not there is None. Raises if the neighbour does not fit there."""

    def __init__(self, name, axes, batch, place):
        super().__init__()
        self.neighbour, self.call = NEIGHBOURS[name]()
        convolution = CONVOLUTIONS[axes]
        self.first = None if place == "in front" else convolution(4, 4, 3, padding=1)
        self.side = convolution(4, 4, 3, padding=1) if "beside" in place else None
        self.last = None
        self.double()
        if place != "behind":
            y = self(made_up(batch, 4, *SIZES[axes]))
            if y.dim() != axes + 2:
                raise ValueError("not an image any more")
            self.last = convolution(y.shape[1], 3, [min(2, size) for size in y.shape[2:]]).double()

    def forward(self, x):
        y = 1 * x if self.first is None else self.first(x)
        y = tree_leaves(self.call(self.neighbour, y))[0]
        if self.side is not None:
            z = self.side(x)
            if y.shape != z.shape:
                raise ValueError("another shape")
            y = y + z
        return y if self.last is None else self.last(y)


def outcome(model, x):
    """Values, gradients of the input and of each parameter (summed over places), buffers."""
    torch.manual_seed(0)
    x = x.clone().requires_grad_()
    values = [y for y in tree_leaves(model(x)) if isinstance(y, Tensor) and y.is_floating_point()]
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(values, [x, *parameters.values()], [like(y) for y in values], allow_unused=True)
    layers = {f"{name}.weight": m.axes for name, m in model.named_modules() if isinstance(m, LocallyConnected)}
    results = {f"value {i}": y for i, y in enumerate(values)} | {"input": gradients[0]} | dict(model.named_buffers())
    for name, gradient in zip(parameters, gradients[1:], strict=True):
        results[name] = gradient.sum(tuple(range(layers[name]))) if name in layers else gradient
    return results


def compare(name, axes, batch, place, *, training):
    """Check one case; say whether it is one."""
    torch.manual_seed(0)
    x = made_up(batch, 4, *SIZES[axes])
    try:
        model = Network(name, axes, batch, place).train(training)
        expected = outcome(copy.deepcopy(model), x)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AssertionError):
        return False  # convolutions cannot stand beside it either
    local = to_locally_connected(model, x, keep_first=int(place == "beside a convolution"), copy_weights=True)
    if place == "between, by hand":
        forget_layout(local)
    case = f"{name} {place} in {axes}d, batch of {batch}, {'training' if training else 'eval'}"
    torch.testing.assert_close(outcome(local, x), expected, msg=lambda text: f"{case}: {text}")
    return True


def a_choice_of_cases(name):
    """In two dimensions if they can be chosen; between layers if it fits there; and where gradients meet."""
    for axes in [n for n in (1, 3) if f"{n}d" in name] or (2, 1):
        if compare(name, axes, 2, "between", training=True):
            return [(axes, 1, "between", True), (axes, 2, "beside a convolution", True)], 1
        if compare(name, axes, 2, "behind", training=True):
            return [], 1
    return [], 0


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_beside_any_neighbour_layers_do_what_convolutions_do(name, request, record_property):
    tried = 0
    if request.config.getoption("--sweep"):
        cases = list(itertools.product((1, 2, 3), (1, 2, 5), PLACES, (True, False)))
    else:
        cases, tried = a_choice_of_cases(name)
    tried += sum(compare(name, *shape, place, training=training) for *shape, place, training in cases)
    record_property("cases", tried)
    assert tried


def test_no_module_or_function_of_pytorch_is_forgotten():
    modules = {
        name for name in dir(nn) if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), nn.Module)
    }
    functions = {name for name in dir(F) if callable(getattr(F, name)) and not isinstance(getattr(F, name), type)}
    known = NEIGHBOURS.keys() | NOT_FOR_RESPONSES
    new = {name for name in modules if not name.startswith("Lazy")} - known
    new |= {
        name for name in functions if name[0] not in "_ABCDEFGHIJKLMNOPQRSTUVWXYZ" and f"F.{name}" not in known
    } - known
    assert not new, "give them a row in one of the tables above"
