"""Every row of every table of the paper, as a named function that returns a complete run.

>>> recipe("cifar10_sleep_every_10").sleep_every
10
>>> cifar10.cifar10_local().connectivity
'local'
"""

from sleepconv.recipes import cifar10, cifar100, tiny_imagenet, imagenet, controls, miniature  # isort: skip  # in the order of `list`
from sleepconv.recipes.grids import GRIDS, grid
from sleepconv.recipes.registry import RECIPES, about, named, recipe, varied
from sleepconv.recipes.rows import TABLES, datasets_of, label, table_rows

__all__ = [
    "GRIDS",
    "RECIPES",
    "TABLES",
    "about",
    "cifar10",
    "cifar100",
    "controls",
    "datasets_of",
    "grid",
    "imagenet",
    "label",
    "miniature",
    "named",
    "recipe",
    "table_rows",
    "tiny_imagenet",
    "varied",
]
