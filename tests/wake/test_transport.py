"""Feedback weights against backpropagation, exactly."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sleepconv import Sleep, to_convolutional, to_grid_convolutional, to_locally_connected, to_per_patch
from sleepconv.models import resnet8, small_vit
from sleepconv.nn import LocallyConnected2d
from sleepconv.sleep import Hebbian, sleeping_layers
from sleepconv.sleep.compact import compact_state, load_compact_state
from sleepconv.wake import (
    DirectFeedbackAlignment,
    FeedbackAlignment,
    KolenPollack,
    SignSymmetry,
    WeightMirrors,
    alignment,
    with_weight_transport,
    without_weight_transport,
)
from sleepconv.wake.feedback_layers import FeedbackLayer

STORED = [FeedbackAlignment(), KolenPollack(), WeightMirrors()]
RULES = [*STORED, SignSymmetry(), SignSymmetry("batchwise"), DirectFeedbackAlignment()]
LAYERS = {
    "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1), (5, 4, 9)),
    "conv2d": (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=1, dilation=2, groups=2), (5, 4, 9, 8)),
    "conv2d same": (nn.Conv2d(2, 3, 4, padding="same"), (5, 2, 6, 6)),
    "conv2d circular": (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular", bias=False), (5, 2, 6, 6)),
    "conv2d without batch": (nn.Conv2d(2, 3, 3), (2, 6, 6)),
    "conv3d": (nn.Conv3d(2, 3, 2), (2, 2, 4, 4, 4)),
    "linear": (nn.Linear(5, 3), (7, 5)),
    "linear on tokens": (nn.Linear(5, 3, bias=False), (2, 3, 7, 5)),
    "linear without batch": (nn.Linear(5, 3), (5,)),
}
LOCAL = ["conv1d", "conv2d", "conv2d same", "conv2d circular", "conv2d without batch", "conv3d"]
CASES = [(name, False) for name in LAYERS] + [(name, True) for name in [*LOCAL, "linear on tokens"]]


def layer_and_input(name, local):
    layer, shape = LAYERS[name]
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    layer = copy.deepcopy(layer).double()
    if local and name.startswith("linear"):
        layer = to_per_patch(layer, x.detach())
    elif local:
        layer = to_locally_connected(layer, x.detach())
    return layer, x


def gradients(model, x, loss=lambda y: y.square().sum()):
    """The gradients of the input and of all parameters but the feedback weights, by name."""
    model.zero_grad()
    x.grad = None
    loss(model(x)).backward()
    return {"x": x.grad} | {n: p.grad for n, p in model.named_parameters() if "feedback" not in n}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        torch.testing.assert_close(other[name], gradient, msg=name)


def copy_forward_weights(model):
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, FeedbackLayer):
                layer.feedback.weight.copy_(layer.weight)


def small_network(local=False):
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Linear(64, 3),
    )
    return to_locally_connected(model, torch.randn(2, 1, 9, 9)) if local else model


@pytest.mark.parametrize("rule", STORED, ids=repr)
@pytest.mark.parametrize(("name", "local"), CASES)
def test_with_feedback_equal_to_the_weights_every_layer_learns_as_by_backpropagation(name, local, rule):
    layer, x = layer_and_input(name, local)
    learning = without_weight_transport(layer, rule)
    torch.testing.assert_close(learning(x), layer(x))
    copy_forward_weights(learning)
    assert_same(gradients(layer, x), gradients(learning, x))


@pytest.mark.parametrize(("name", "local"), CASES)
def test_the_input_gets_the_gradient_of_a_layer_that_has_the_feedback_weights(name, local):
    layer, x = layer_and_input(name, local)
    learning = without_weight_transport(layer, FeedbackAlignment())
    expected = gradients(layer, x, torch.sum)
    with torch.no_grad():
        layer.weight.copy_(learning.feedback.weight)
    expected["x"] = gradients(layer, x, torch.sum)["x"]
    assert_same(expected, gradients(learning, x, torch.sum))


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("rule", STORED, ids=repr)
def test_a_residual_network_with_copied_weights_learns_as_by_backpropagation(local, rule):
    model, x = resnet8(), torch.randn(4, 3, 16, 16, dtype=torch.float64, requires_grad=True)
    model = (to_locally_connected(model, torch.zeros(2, 3, 16, 16)) if local else model).double()
    learning = without_weight_transport(model, rule)
    copy_forward_weights(learning)
    assert_same(gradients(model, x), gradients(learning, x))


@pytest.mark.parametrize("local", [False, True])
def test_sign_symmetry_is_backpropagation_where_all_weights_have_one_size(local):
    layer, x = layer_and_input("conv2d", local)
    with torch.no_grad():
        layer.weight.copy_(0.3 * layer.weight.sign())
    assert_same(gradients(layer, x), gradients(without_weight_transport(layer, SignSymmetry()), x))


def test_batchwise_magnitudes_are_new_in_each_pass_and_positive():
    layer, _ = layer_and_input("linear", False)
    learning = without_weight_transport(layer, SignSymmetry("batchwise"))
    first, second = (learning.feedback.weights_for(layer.weight) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(first.sign(), layer.weight.sign())
    mean = torch.stack([learning.feedback.weights_for(layer.weight) for _ in range(2000)]).mean(0)
    uniform = layer.weight.sign() * layer.weight.abs().mean()
    torch.testing.assert_close(mean, uniform, rtol=0.1, atol=0)  # five standard errors


def test_a_layer_that_is_used_twice_sends_errors_through_its_feedback_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(torch.tanh(self.layer(x)))

    model, x = Twice().double(), torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    learning = without_weight_transport(model, KolenPollack())
    copy_forward_weights(learning)
    expected = gradients(model, x)
    assert_same(expected, gradients(learning, x))
    torch.testing.assert_close(learning.layer.feedback.weight.grad, expected["layer.weight"])
    with pytest.raises(ValueError, match="layer cannot learn by direct feedback alignment: it is used 2 times"):
        without_weight_transport(model, DirectFeedbackAlignment(), sample_input=x.detach())


@pytest.mark.parametrize(
    ("optimizer", "options"), [(torch.optim.SGD, {}), (torch.optim.AdamW, {})], ids=["SGD", "AdamW"]
)
def test_weights_of_kolen_and_pollack_converge_at_the_rate_of_their_decay(optimizer, options):
    model = without_weight_transport(small_network(local=True), KolenPollack()).double()
    layers = [layer for layer in model.modules() if isinstance(layer, FeedbackLayer)]
    before = [(layer.weight - layer.feedback.weight).detach() for layer in layers]
    learner = optimizer(model.parameters(), lr=0.02, weight_decay=0.5, **options)
    x = torch.randn(8, 1, 9, 9, dtype=torch.float64)
    for _ in range(30):
        learner.zero_grad()
        F.cross_entropy(model(x), torch.arange(8) % 3).backward()
        learner.step()
    for layer, difference in zip(layers, before, strict=True):
        left = layer.weight - layer.feedback.weight
        torch.testing.assert_close(left.detach(), (1 - 0.02 * 0.5) ** 30 * difference)


def test_direct_feedback_is_the_hand_written_gradient_of_a_two_layer_network():
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    x, labels = torch.randn(7, 6, dtype=torch.float64), torch.arange(7) % 3
    learning = without_weight_transport(model, DirectFeedbackAlignment(), sample_input=x)
    F.cross_entropy(learning(x), labels).backward()
    hidden = torch.tanh(x @ model[0].weight.T + model[0].bias)
    error = (F.softmax(hidden @ model[2].weight.T + model[2].bias, 1) - F.one_hot(labels, 3)) / 7
    delta = (error @ learning[2].feedback.weight.T) * (1 - hidden.square())
    torch.testing.assert_close(learning[2].weight.grad, error.T @ hidden)
    torch.testing.assert_close(learning[2].bias.grad, error.sum(0))
    torch.testing.assert_close(learning[0].weight.grad, delta.T @ x)
    torch.testing.assert_close(learning[0].bias.grad, delta.sum(0))


def test_direct_feedback_with_the_weights_of_the_last_layer_is_backpropagation():
    model = small_network(local=True).double()
    x = torch.randn(4, 1, 9, 9, dtype=torch.float64)
    learning = without_weight_transport(model, DirectFeedbackAlignment(), sample_input=x)
    with torch.no_grad():
        learning[6].feedback.weight.copy_(learning[6].weight.T)
    model(x).square().sum().backward()
    learning(x).square().sum().backward()
    torch.testing.assert_close(learning[3].weight.grad, model[3].weight.grad)  # the layer right below the last


@pytest.mark.parametrize("local", [False, True])
def test_direct_feedback_reaches_every_layer_as_the_same_error_in_any_memory_layout(local):
    model = small_network(local)
    x = torch.randn(4, 1, 9, 9)
    learning = without_weight_transport(model, DirectFeedbackAlignment(), sample_input=x)
    seen = []
    learning[3].register_forward_pre_hook(lambda module, inputs: inputs[0].register_hook(seen.append) and None)
    scores = learning(x)
    scores.retain_grad()
    scores.square().sum().backward()
    projection = learning[3].feedback.weight.flatten(0, 1)  # (places, channels, outputs)
    expected = torch.einsum("bk,pck->bcp", scores.grad, projection).reshape(4, 4, 9, 9)
    torch.testing.assert_close(seen[0], expected)


def test_a_part_of_a_model_cannot_learn_by_direct_feedback_but_runs_without_gradients():
    x = torch.randn(4, 1, 9, 9)
    learning = without_weight_transport(small_network(), DirectFeedbackAlignment(), sample_input=x)
    with pytest.raises(RuntimeError, match="run the model that was converted, not a part of it"):
        learning[0](x)
    with torch.no_grad():
        assert learning[0](x).shape == (4, 4, 9, 9)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_conversion_changes_no_response_and_back_is_the_model_itself(rule):
    x = torch.randn(4, 1, 9, 9)
    model = small_network(local=True)
    learning = without_weight_transport(model, rule, sample_input=x)
    torch.testing.assert_close(learning(x), model(x))
    torch.testing.assert_close(learning.eval()(x), model.eval()(x))
    back = with_weight_transport(learning)
    assert [type(a) for a in back.modules()] == [type(a) for a in model.modules()]
    assert back.state_dict().keys() == model.state_dict().keys()
    for one, other in zip(back.parameters(), model.parameters(), strict=True):
        assert torch.equal(one, other)
    back(x).sum().backward()
    assert sum(isinstance(layer, FeedbackLayer) for layer in learning.modules()) == 3  # it was a copy


def test_back_to_a_convolution_the_feedback_is_the_mean_too():
    model = without_weight_transport(small_network(local=True), KolenPollack())
    mean = model[0].feedback.weight.mean((0, 1))
    conv = to_convolutional(model)
    assert type(with_weight_transport(conv)[0]) is nn.Conv2d
    torch.testing.assert_close(conv[0].feedback.weight, mean)
    assert conv[0].feedback.weight.requires_grad
    conv(torch.randn(2, 1, 9, 9)).sum().backward()
    assert torch.equal(conv[0].weight.grad, conv[0].feedback.weight.grad)
    with pytest.raises(ValueError, match="no locally connected layer"):
        sleeping_layers(conv)


def test_a_convolution_that_learned_by_direct_feedback_still_does_and_has_a_projection_of_its_own():
    x = torch.randn(4, 1, 9, 9)
    learning = without_weight_transport(small_network(local=True), DirectFeedbackAlignment(), sample_input=x)
    with pytest.warns(UserWarning, match="changes what the network computes"):
        conv = to_convolutional(learning)
    conv(x).square().sum().backward()
    assert conv[0].weight.grad.abs().sum() > 0
    assert torch.equal(conv[3].feedback.weight, learning[3].feedback.weight)
    assert conv[3].feedback.weight is not learning[3].feedback.weight
    learning(x).sum().backward()


def test_a_network_with_feedback_weights_becomes_grid_convolutions_only_without_them():
    learning = without_weight_transport(small_network(local=True), KolenPollack())
    Sleep(learning, every=1).sleep()
    with pytest.raises(ValueError, match="layer '0' cannot become a GridConvolution.*call sleepconv.wake.with_weight"):
        to_grid_convolutional(learning)
    x = torch.randn(2, 1, 9, 9)
    torch.testing.assert_close(to_grid_convolutional(with_weight_transport(learning))(x), learning(x))


def test_the_way_back_leaves_no_hooks_wherever_the_model_was_converted():
    x = torch.randn(4, 1, 9, 9)
    learning = without_weight_transport(small_network(), DirectFeedbackAlignment(), sample_input=x)
    back = with_weight_transport(nn.Sequential(learning, nn.LogSoftmax(1)))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in back.modules())


@pytest.mark.parametrize("rule", [*STORED, DirectFeedbackAlignment()], ids=repr)
@pytest.mark.parametrize("shared", [True, False])
def test_sleep_shares_the_feedback_weights_too_unless_told_otherwise(rule, shared):
    model = small_network(local=True)
    options = {"sample_input": torch.randn(2, 1, 9, 9), "share_in_sleep": shared}
    learning = without_weight_transport(model, rule, **options)
    before = learning[3].feedback.weight.detach().clone()
    Sleep(learning, every=1).sleep()
    after = learning[3].feedback.weight.detach()
    assert torch.equal(learning[3].weight[0, 0], learning[3].weight[3, 3])
    if not shared:
        assert torch.equal(after, before)
        return
    assert torch.equal(after[0, 0], after[3, 3])
    torch.testing.assert_close(after[0, 0], before[::3, ::3].mean((0, 1)))


@pytest.mark.parametrize("rule", [Hebbian(steps=20), Hebbian(patterns="independent", steps=60)], ids=["one", "random"])
def test_a_learned_sleep_shares_feedback_weights_as_it_shares_weights(rule):
    learning = without_weight_transport(LocallyConnected2d(2, 3, 3, input_size=9), KolenPollack())
    rule(learning)
    assert rule.reports["feedback"].negative_log_snr < -5


def test_patterns_that_pass_through_the_network_do_not_reach_feedback_weights_which_is_said():
    model = to_locally_connected(resnet8(), torch.zeros(2, 3, 16, 16))
    rule = Hebbian(decay=1e-4, patterns="disinhibited", steps=1)
    with pytest.raises(ValueError, match="no pattern reached conv1.feedback"):
        rule(without_weight_transport(model, FeedbackAlignment()))
    learning = without_weight_transport(model, FeedbackAlignment(), share_in_sleep=False)
    rule(model)
    rule(learning)
    assert torch.equal(learning.conv1.weight, model.conv1.weight)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_compiled_model_learns_the_same(rule):
    x = torch.randn(4, 1, 9, 9, requires_grad=True)
    for local in (False, True):
        learning = without_weight_transport(small_network(local), rule, sample_input=x.detach())
        torch.compiler.reset()
        compiled = torch.compile(learning, backend="aot_eager", fullgraph=True)
        if rule == SignSymmetry("batchwise"):
            gradients(compiled, x)  # random by design: it runs
        else:
            expected, got = gradients(learning, x), gradients(compiled, x)
            assert_same(expected, {name.removeprefix("_orig_mod."): value for name, value in got.items()})


@pytest.mark.parametrize("local", [False, True])
def test_autocast_learns_in_its_precision(local):
    x = torch.randn(4, 1, 9, 9)
    learning = without_weight_transport(small_network(local), KolenPollack())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = learning(x)
    assert y.dtype == torch.bfloat16
    y.float().square().sum().backward()
    expected = gradients(copy.deepcopy(learning), x)
    for name, gradient in ((n, p.grad) for n, p in learning.named_parameters() if "feedback" not in n):
        assert gradient.dtype == torch.float32
        assert F.cosine_similarity(gradient.flatten(), expected[name].flatten(), dim=0) > 0.98


def test_compact_checkpoints_hold_one_feedback_filter_per_grid_and_restore_it():
    learning = without_weight_transport(small_network(local=True), KolenPollack())
    Sleep(learning, every=1).sleep()
    state = compact_state(learning)
    assert state["3.feedback.weight@grids"].shape == (9, 4, 4, 3, 3)
    other = without_weight_transport(small_network(local=True), KolenPollack())
    load_compact_state(other, state)
    for name, value in learning.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(3, 3))
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x @ self.matrix)


class Scaled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def wrapped():
    model = nn.Sequential(nn.Linear(3, 3))
    model[0].forward = model[0].forward  # as libraries do that wrap layers
    return model


def tied():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.LSTM(3, 3)), r"1 \(LSTM\) cannot learn.*exclude=\['1.weight_ih_l0'"),
        (nn.Sequential(nn.Linear(3, 3), nn.ConvTranspose2d(3, 3, 3)), r"1 \(ConvTranspose2d\) cannot learn"),
        (nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))), r"0 \(Param.*Linear\).*parametrized"),
        (nn.MultiheadAttention(4, 2), r"the model itself \(MultiheadAttention\) cannot learn"),
        (nn.Sequential(Own()), r"0 \(Own\) cannot learn.*0.matrix"),
        (nn.Sequential(Scaled(3, 3)), r"0 \(Scaled\).*may override how the layer computes"),
        (wrapped(), r"0 \(Linear\).*may override how the layer computes"),
        (tied(), r"0 \(Linear\).*tied to another module's"),
        (nn.Sequential(nn.LazyLinear(3)), r"0 \(LazyLinear\).*lazy"),
        (nn.Sequential(nn.ReLU()), "nothing to convert"),
        (without_weight_transport(nn.Linear(3, 3), "kolen_pollack"), "has feedback weights already"),
    ],
)
def test_what_no_rule_can_handle_is_refused_by_name_and_left_unchanged(model, message):
    before = [type(module) for module in model.modules()]
    with pytest.raises(ValueError, match=message):
        without_weight_transport(model, "kolen_pollack", inplace=True)
    assert [type(module) for module in model.modules()] == before


def test_what_is_excluded_by_name_learns_by_backpropagation():
    model = without_weight_transport(nn.Sequential(Own(), nn.LSTM(3, 3)), KolenPollack(), exclude=["0.matrix", "1"])
    assert [name for name, layer in model.named_modules() if isinstance(layer, FeedbackLayer)] == ["0.layer"]
    vit = without_weight_transport(small_vit(), KolenPollack(), exclude=own_parameters(small_vit()))
    vit(torch.randn(2, 3, 32, 32)).sum().backward()


def own_parameters(model):
    modules = [(name, module) for name, module in model.named_modules() if not hasattr(module, "weight")]
    return [f"{name}.{key}".lstrip(".") for name, module in modules for key in module._parameters]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "kolen_polack"}, "there is no rule 'kolen_polack'; did you mean 'kolen_pollack'"),
        ({"rule": KolenPollack}, "`rule` must be a rule such as KolenPollack"),
        ({"rule": "direct_feedback_alignment"}, "pass one batch as sample_input"),
        ({"rule": "kolen_pollack", "exclude": ["nowhere"]}, "no module or parameter 'nowhere'"),
        ({"rule": "kolen_pollack", "exclude": "0"}, "`exclude` must be a list of names"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        without_weight_transport(nn.Linear(2, 2), **arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KolenPollack(scale=-1), "`scale` must be a finite number, at least 0, got -1"),
        (lambda: SignSymmetry("random"), "`magnitudes` must be 'uniform' or 'batchwise', got 'random'"),
        (lambda: WeightMirrors(patterns=0), "`patterns` must be"),
        (lambda: WeightMirrors(decay=2), "`decay` must be a finite number, at least 0, at most 1, got 2"),
    ],
)
def test_wrong_options_of_a_rule_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_measuring_angles_leaves_the_random_numbers_of_training_alone():
    model = without_weight_transport(nn.Linear(4, 3), SignSymmetry("batchwise"))
    before = torch.get_rng_state()
    alignment(model)
    assert torch.equal(torch.get_rng_state(), before)
