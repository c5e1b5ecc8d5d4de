"""The paper's experiment in miniature: ResNet8 on CIFAR-10 at 16×16, with the protocol and the rates of its Table 1.

Everything is halved, padding included; a run of 200 epochs takes about a core-hour. The paper has no such experiment:
its numbers for ResNet20 at 32×32 stand beside ours for context.
"""

from dataclasses import replace

from sleepconv.recipes.registry import named, recipe
from sleepconv.recipes.rows import MINIATURES, table_rows
from sleepconv.training import Run


def _in_miniature(name: str, original: str) -> None:
    def run() -> Run:
        full = recipe(original)
        return replace(full, dataset="cifar10-16x16", network="resnet8", padding=full.padding // 2)

    run.__name__ = name
    run.__doc__ = f"{original} in miniature: ResNet8 on 16×16 images, padding halved. Not in the paper."
    named(run)


for _table, _original in MINIATURES.items():
    for _row, _name in table_rows(_table, "cifar10-16x16").items():
        _in_miniature(_name, table_rows(_original, "cifar10")[_row])
