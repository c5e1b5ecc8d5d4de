"""The experiments on CIFAR-10 in miniature: ResNet8 on 16×16 images, with the protocol and rates of the large ones.

Everything is halved, padding included; a run of 200 epochs takes about a core-hour. The paper has no such experiment:
its numbers for ResNet20 at 32×32 stand beside ours for context.
"""

from dataclasses import replace

from sleepconv.recipes.registry import named, recipe
from sleepconv.recipes.rows import OWN_TABLES, table_rows
from sleepconv.training import Run


def _in_miniature(name: str, original: str) -> None:
    def run() -> Run:
        full = recipe(original)
        return replace(full, dataset="cifar10-16x16", network="resnet8", padding=full.padding // 2)

    run.__name__ = name
    run.__doc__ = f"{original} in miniature: ResNet8 on 16×16 images, padding halved. Not in the paper."
    named(run)


for _table in ("miniature", "miniature-padding0"):
    for _name in table_rows(_table, OWN_TABLES[_table].dataset).values():
        _in_miniature(_name, _name.replace("miniature", "cifar10", 1))
