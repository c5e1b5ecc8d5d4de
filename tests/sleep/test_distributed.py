"""Two real processes against one."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from sleepconv import Sleep, to_locally_connected
from sleepconv.optim import SlowMomentum, share_gradients, share_moments
from sleepconv.sleep import Hebbian, Instant
from sleepconv.sleep.distributed import full_tensor, is_distributed, reshard_, share_
from sleepconv.testing import assert_convolutional
from sleepconv.wake import (
    DirectFeedbackAlignment,
    KolenPollack,
    WeightMirrors,
    mirror_in_sleep,
    without_weight_transport,
)

PROCESSES, STEPS, BATCH = 2, 5, 8
LAYER_BY_LAYER = Hebbian(patterns="layer_by_layer", steps=5, patterns_per_step=16)
SINGLE, REPLICAS, SHARDS = "one process", "DDP", "FSDP2"


class Noisy:
    """A rule that is not instant and differs from process to process; on one it is deterministic."""

    def sleep_(self, layers, model):
        for layer in layers.values():
            assert type(layer.weight) is nn.Parameter
            layer.weight.data.add_(1 + (dist.get_rank() if dist.is_initialized() else 0))


class HalfWay:
    """A user's rule that changes sharded weights where they are."""

    works_on_shards = True

    def sleep_(self, layers, model):
        for layer in layers.values():
            assert is_distributed(layer.weight) == dist.is_initialized()
            mean = share_(layer.weight.detach().clone(), layer.grids)
            layer.weight.lerp_(mean, 0.5)


class Failing:
    """A rule that changes a weight and runs the network, which answers accordingly; then it fails."""

    def sleep_(self, layers, model):
        layers["0"].weight.data.zero_()
        answers = model[0](torch.randn(1, 1, 9, 9, dtype=torch.float64))
        assert torch.equal(answers[0, :, 0, 0], model[0].bias)
        assert model(torch.randn(1, 1, 9, 9, dtype=torch.float64)).shape == (1, 3)
        raise KeyError("after all")


def local_network():
    torch.manual_seed(0)
    convolutional = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2), nn.Flatten(), nn.Linear(64, 3)
    )
    return to_locally_connected(convolutional, torch.randn(1, 1, 9, 9)).double()


def spread(model, mode):
    if mode == REPLICAS:
        return DistributedDataParallel(model)
    if mode == SHARDS:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (PROCESSES,))
        fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def trained(mode, rank=0, at_the_end=False, moments=False, gradients=False, slow=0.0, wake=None, **options):
    """Weights and moments after a few steps on this process's part of each batch, and perhaps a sleep at the end."""
    network = local_network()
    if wake is not None:
        network = without_weight_transport(network, wake, sample_input=torch.zeros(1, 1, 9, 9, dtype=torch.float64))
    model = spread(network, mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    sleep = Sleep(model, every=1 if gradients else 2, statistics=True, **options)
    sleep.attach(optimizer)
    if isinstance(wake, WeightMirrors):
        mirror_in_sleep(sleep)
    if moments:
        share_moments(optimizer, sleep)
    if gradients:
        share_gradients(optimizer, sleep)
    if slow:
        outer = SlowMomentum(sleep, momentum=slow)
        state = outer.state_dict()
        outer.load_state_dict(
            {part: {name: full_tensor(t).clone() for name, t in state[part].items()} for part in state}
        )
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(STEPS, BATCH, 1, 9, 9, dtype=torch.float64, generator=generator)
    targets = torch.randint(3, (STEPS, BATCH), generator=generator)
    share = slice(None) if mode == SINGLE else slice(rank, None, PROCESSES)
    for x, y in zip(images[:, share], targets[:, share], strict=True):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    if at_the_end:
        with torch.inference_mode():
            model.eval()(images[0])  # FSDP2 may keep gathered copies of the weights
            sleep.sleep_if_awake()
            model(images[0])
        assert sleep.steps_since_sleep == 0
        reshard_(model)
    weights = {name: full_tensor(p).clone() for name, p in network.named_parameters()}
    moments = {
        f"{name} {key}": full_tensor(optimizer.state[p][key]).clone()
        for name, p in network.named_parameters()
        for key in ("exp_avg", "exp_avg_sq")
        if p.requires_grad
    }
    return {"weights": weights, "moments": moments, "records": [record.as_dict() for record in sleep.records]}


def train_everywhere(rank, folder):
    for name, (mode, options) in RUNS.items():
        torch.save(trained(mode, rank, **options), folder / f"{name}-{rank}.pt")
    torch.save(refused_placement(), folder / f"refusal-{rank}.pt")
    torch.save(failed_rule(), folder / f"rule-{rank}.pt")
    torch.save(more_processes_than_rows(), folder / f"rows-{rank}.pt")
    torch.save(sharded_within_replicas(), folder / f"replicas-{rank}.pt")


def refused_placement():
    mesh = dist.device_mesh.init_device_mesh("cpu", (PROCESSES,))
    try:
        share_(distribute_tensor(torch.randn(6, 6, 2), mesh, [Shard(1)]), torch.zeros(6, 6, dtype=torch.int64))
    except ValueError as error:
        return str(error)
    return "no error"


def failed_rule():
    model = spread(local_network(), SHARDS)
    before = full_tensor(model[0].weight).clone()
    with pytest.raises(KeyError, match="after all"):
        Sleep(model, every=1, rule=Failing()).step()
    unchanged = torch.equal(full_tensor(model[0].weight), before)
    model(torch.randn(2, 1, 9, 9, dtype=torch.float64)).sum().backward()
    return unchanged and hasattr(model[0].weight.grad, "full_tensor")


def more_processes_than_rows():
    mesh = dist.device_mesh.init_device_mesh("cpu", (PROCESSES,))
    weight, grids = torch.arange(4.0).reshape(1, 4, 1), torch.tensor([[0, 1, 0, 1]])
    return [
        share_(distribute_tensor(weight, mesh, [place]), grids).full_tensor().flatten().tolist()
        for place in (Shard(0), Replicate())
    ]


def sharded_within_replicas():
    mesh = dist.device_mesh.init_device_mesh("cpu", (1, PROCESSES))
    weight = distribute_tensor(torch.arange(14.0).reshape(7, 2), mesh, [Replicate(), Shard(0)])
    return share_(weight, torch.arange(7) % 3).full_tensor()


RUNS = {
    "ddp": (REPLICAS, {}),
    "fsdp": (SHARDS, {}),
    "ddp-moments": (REPLICAS, {"moments": True, "at_the_end": True}),
    "fsdp-moments": (SHARDS, {"moments": True, "at_the_end": True}),
    "ddp-gradients": (REPLICAS, {"gradients": True}),
    "fsdp-gradients": (SHARDS, {"gradients": True}),
    "ddp-slow": (REPLICAS, {"slow": 0.5}),
    "fsdp-slow": (SHARDS, {"slow": 0.5}),
    "ddp-rule": (REPLICAS, {"rule": Noisy()}),
    "fsdp-rule": (SHARDS, {"rule": Noisy()}),
    "fsdp-shards": (SHARDS, {"rule": HalfWay()}),
    "fsdp-border": (SHARDS, {"rule": Instant(border="interior"), "moments": True}),
    "ddp-kolen-pollack": (REPLICAS, {"wake": KolenPollack(), "gradients": True}),
    "fsdp-kolen-pollack": (SHARDS, {"wake": KolenPollack(), "gradients": True}),
    "ddp-mirrors": (REPLICAS, {"wake": WeightMirrors(patterns=4)}),
    "fsdp-mirrors": (SHARDS, {"wake": WeightMirrors(patterns=4)}),
    "ddp-direct": (REPLICAS, {"wake": DirectFeedbackAlignment()}),
    "fsdp-direct": (SHARDS, {"wake": DirectFeedbackAlignment()}),
    "ddp-layers": (REPLICAS, {"rule": LAYER_BY_LAYER}),
    "fsdp-layers": (SHARDS, {"rule": LAYER_BY_LAYER, "at_the_end": True}),
}


@pytest.fixture(scope="module")
def results(on_two_processes, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    on_two_processes(train_everywhere, folder)
    return folder


@pytest.mark.parametrize("run", RUNS)
def test_two_processes_end_with_the_weights_of_one(run, results):
    expected = trained(SINGLE, **RUNS[run][1])
    for rank in range(PROCESSES):
        torch.testing.assert_close(torch.load(results / f"{run}-{rank}.pt")["weights"], expected["weights"])


@pytest.mark.parametrize("run", ["ddp-moments", "fsdp-moments"])
def test_two_processes_end_with_the_shared_moments_of_one(run, results):
    expected = trained(SINGLE, **RUNS[run][1])
    network = local_network()
    averages = {name.split()[0]: m for name, m in expected["moments"].items() if "sq" not in name}
    network.load_state_dict(averages)
    assert_convolutional(network)
    for rank in range(PROCESSES):
        torch.testing.assert_close(torch.load(results / f"{run}-{rank}.pt")["moments"], expected["moments"])


@pytest.mark.parametrize("run", ["ddp", "fsdp"])
def test_statistics_of_the_sleeps_are_those_of_one_process(run, results):
    expected = trained(SINGLE)["records"]
    assert [record["step"] for record in expected] == [2, 4]
    records = torch.load(results / f"{run}-1.pt")["records"]
    assert [(r["step"], list(r["layers"]), r["layers"]["0"]["after"]) for r in records] == [
        (r["step"], list(r["layers"]), "inf") for r in expected
    ]
    assert records[0]["layers"]["2"]["before"] == pytest.approx(expected[0]["layers"]["2"]["before"])


def test_weights_sharded_by_another_axis_are_refused(results):
    assert "Shard(0)" in torch.load(results / "refusal-0.pt")


def test_a_rule_that_fails_on_a_sharded_network_leaves_weights_that_still_train(results):
    assert all(torch.load(results / f"rule-{rank}.pt") for rank in range(PROCESSES))


def test_weights_sharded_within_replicas_are_shared_as_on_one_process(results):
    expected = share_(torch.arange(14.0).reshape(7, 2), torch.arange(7) % 3)
    for rank in range(PROCESSES):
        torch.testing.assert_close(torch.load(results / f"replicas-{rank}.pt"), expected)


def test_a_process_without_rows_takes_part(results):
    for rank in range(PROCESSES):
        assert torch.load(results / f"rows-{rank}.pt") == [[1, 2, 1, 2], [1, 2, 1, 2]]


def test_one_process_shares_as_before():
    layer = local_network()[0]
    copy = layer.weight.detach().clone()
    torch.testing.assert_close(share_(copy, layer.grids), Instant()(layer).weight.detach())
