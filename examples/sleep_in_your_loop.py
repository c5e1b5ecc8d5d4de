"""A locally connected network that sleeps every ten steps, in an ordinary training loop; runs in seconds."""

import torch
from torch import nn

from sleepconv import Sleep, to_locally_connected
from sleepconv.experiments.data import Batches, load_task
from sleepconv.testing import assert_convolutional

torch.manual_seed(0)
task = load_task("digits")
network = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 10 * 22, 10))
model = to_locally_connected(network, torch.zeros(1, *task.input_size))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
sleep = Sleep(model, every=10, statistics=True)
sleep.attach(optimizer)

batches = Batches(task.train, batch_size=64)
for epoch in range(5):
    for images, labels in batches.epoch(epoch):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

sleep.sleep_if_awake()
images, labels = Batches(task.evaluation, batch_size=len(task.evaluation), shuffle=False).batch(0, 0)
with torch.no_grad():
    accuracy = (model.eval()(images).argmax(1) == labels).float().mean()
assert_convolutional(model)
print(f"{accuracy:.1%} of the test digits after {len(sleep.records)} sleeps, the last after step {sleep.last_sleep}")
print("weight SNR before the last sleep:", sleep.records[-1].as_dict()["layers"]["0"]["before"])
