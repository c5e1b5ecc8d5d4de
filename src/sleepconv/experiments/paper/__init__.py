"""The paper's numbers, each written once, and the recipes that are made from them.

>>> recipe("cifar10_sleep_every_10").sleep_every
10
"""

from sleepconv.experiments.paper.hyperparameter_searches import SEARCHES, search_runs
from sleepconv.experiments.paper.recipes import RECIPES, about, recipe, register_recipe, register_table, varied
from sleepconv.experiments.paper.rows import TABLES, datasets_of, label, table_rows

__all__ = [
    "RECIPES",
    "SEARCHES",
    "TABLES",
    "about",
    "datasets_of",
    "label",
    "recipe",
    "register_recipe",
    "register_table",
    "search_runs",
    "table_rows",
    "varied",
]
