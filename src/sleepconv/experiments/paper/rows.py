"""The rows of each table: their names, the paper's words for them, and their recipes."""

from dataclasses import dataclass
from typing import Any

from sleepconv.names import did_you_mean

TableName = int | str
SMALL_DATASETS = ("cifar10", "cifar100", "tiny-imagenet")
PADDING: dict[TableName, int] = {1: 4, 4: 0, 5: 4, 6: 8, 7: 0, 8: 4, 9: 8, 10: 0, 11: 4, 12: 8}


@dataclass(frozen=True)
class _OwnTable:
    """A table that the paper does not have: one of its tables in another size, or with rows of ours."""

    original: int
    dataset: str
    prefix: str
    left_out: tuple[str, ...]
    added: tuple[str, ...]


@dataclass(frozen=True)
class RegisteredTable:
    """A table from outside: the recipe of each row, by the words for it."""

    dataset: str
    rows: dict[str, str]
    caption: str


_REPETITIONS = ("4_repetitions", "8_repetitions", "16_repetitions")
LEARNING_SPEED = {
    "shared_gradients_sleep_every_1": "LC - ws(1), shared gradients",
    "two_periods_sleep_every_1": "LC - ws(1), two periods",
    "slow_momentum_sleep_every_10": "LC - ws(10), slow momentum",
    "slow_momentum_sleep_every_100": "LC - ws(100), slow momentum",
    "nine_filters_sleep_every_1": "nine filters, conv's rate",
    "one_filter_sleep_every_1": "LC - ws(1), one filter per layer",
    "small_rate_convolutional": "conv, LC's rate",
}
OWN_TABLES = {
    "learning-speed": _OwnTable(1, "cifar10", "cifar10", _REPETITIONS, tuple(LEARNING_SPEED)),
    "miniature": _OwnTable(1, "cifar10-16x16", "miniature", _REPETITIONS[2:], tuple(LEARNING_SPEED)),
    "miniature-padding0": _OwnTable(4, "cifar10-16x16", "miniature_padding0", (), ()),
}


@dataclass(frozen=True)
class _WakeTable:
    """A table of the rules of learning without weight transport: a row for each rule, a column for each connectivity.

    Attributes:
        dataset: of its runs.
        prefix: of the names of its recipes.
        backprop: the recipes that learn by backpropagation, of which the others are variants, by connectivity.
        rules: the other rules.
    """

    dataset: str
    prefix: str
    backprop: dict[str, str]
    rules: tuple[str, ...]


WAKE_RULES = {
    "backprop": "backprop",
    "sign_symmetry": "sign symmetry",
    "kolen_pollack": "Kolen–Pollack",
    "mirrored_kolen_pollack": "Kolen–Pollack, mirrored in sleep",
    "weight_mirrors": "weight mirrors",
    "feedback_alignment": "feedback alignment",
    "direct_feedback_alignment": "direct feedback alignment",
}
WAKE_COLUMNS = ("convolutional", "local", "sleep_every_1", "sleep_every_10")
WAKE_TABLES = {
    "wake": _WakeTable(
        "cifar10-16x16",
        "miniature",
        {
            "convolutional": "miniature_convolutional",
            "local": "miniature_local",
            "sleep_every_1": "miniature_shared_gradients_sleep_every_1",
            "sleep_every_10": "miniature_slow_momentum_sleep_every_10",
        },
        tuple(WAKE_RULES)[1:],
    ),
    "wake-bartunov": _WakeTable(
        "cifar10",
        "bartunov",
        {column: f"bartunov_{column}" for column in WAKE_COLUMNS},
        ("sign_symmetry", "kolen_pollack", "feedback_alignment", "direct_feedback_alignment"),
    ),
}
REGISTERED_TABLES: dict[TableName, RegisteredTable] = {}
"""The tables that `register_table` has registered."""
TABLES: list[TableName] = [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, *OWN_TABLES, *WAKE_TABLES]

_LABELS = {
    "convolutional": "conv",
    "local": "LC",
    "4_repetitions": "LC - 4 reps",
    "8_repetitions": "LC - 8 reps",
    "16_repetitions": "LC - 16 reps",
    "sleep_every_1": "LC - ws(1)",
    "sleep_every_10": "LC - ws(10)",
    "sleep_every_100": "LC - ws(100)",
}
"""The paper's words for its rows."""

ROW_SETTINGS: dict[str, dict[str, Any]] = {
    "convolutional": {"connectivity": "convolutional"},
    "local": {"connectivity": "local"},
    **{f"{n}_repetitions": {"connectivity": "local", "repetitions": n} for n in (4, 8, 16)},
    **{f"sleep_every_{n}": {"connectivity": "local", "sleep_every": n} for n in (1, 10, 100)},
    "first_convolutional_local": {"connectivity": "local_after_first"},
    **{
        f"first_convolutional_sleep_every_{n}": {"connectivity": "local_after_first", "sleep_every": n}
        for n in (1, 10, 100)
    },
}
"""What a row's run is besides its dataset and its rates."""


def datasets_of(table: TableName) -> tuple[str, ...]:
    """Return the datasets of a table.

    >>> datasets_of(13)
    ('imagenet',)
    """
    if table not in TABLES:
        hint = did_you_mean(table if isinstance(table, str) else "", map(str, TABLES))
        hint += "; for Table 3 there is `sleepconv brain table`" if table == 3 else ""
        raise ValueError(f"there is no table {table} of training results{hint}")
    if table in REGISTERED_TABLES:
        return (REGISTERED_TABLES[table].dataset,)
    if isinstance(table, str):
        return ((OWN_TABLES | WAKE_TABLES)[table].dataset,)
    return SMALL_DATASETS if table in PADDING else ("imagenet",)


def table_rows(table: TableName, dataset: str) -> dict[str, str]:
    """Return the recipe of each row of a table, in the table's order.

    >>> list(table_rows(4, "cifar10").values())[:2]
    ['cifar10_padding0_convolutional', 'cifar10_padding0_local']
    >>> list(table_rows(13, "imagenet"))[-1]
    'first_convolutional_sleep_every_100'
    """
    if dataset not in datasets_of(table):
        raise ValueError(f"table {table} has {', '.join(datasets_of(table))}, not {dataset!r}")
    if table in WAKE_TABLES:
        wake = WAKE_TABLES[str(table)]
        pairs = [f"{rule}_{column}" for rule in wake.rules for column in WAKE_COLUMNS]
        learned = {pair: f"{wake.prefix}_{pair}" for pair in pairs}
        return {f"backprop_{column}": name for column, name in wake.backprop.items()} | learned
    if table in REGISTERED_TABLES:
        return dict(REGISTERED_TABLES[table].rows)
    if isinstance(table, str):
        own = OWN_TABLES[table]
        rows = [row for row in table_rows(own.original, "cifar10") if row not in own.left_out]
        return {row: f"{own.prefix}_{row}" for row in [*rows, *own.added]}
    prefix = dataset.replace("-", "_") + ("" if PADDING.get(table, 4) == 4 else f"_padding{PADDING[table]}")
    without_repetitions = [row for row in _LABELS if "repetitions" not in row]
    rows = list(_LABELS) if PADDING.get(table) else without_repetitions
    if table == 13:
        rows += [f"first_convolutional_{row}" for row in without_repetitions[1:]]
    return {row: f"{prefix}_{row}" for row in rows}


def label(row: str) -> str:
    """Return the words for a row: the paper's, ours if the row is, or the row itself if it was registered.

    >>> label("first_convolutional_sleep_every_10")
    'LC (1st layer conv) - ws(10)'
    """
    if row in LEARNING_SPEED:
        return LEARNING_SPEED[row]
    for rule, words in WAKE_RULES.items():
        if row.startswith(f"{rule}_"):
            return f"{_LABELS[row.removeprefix(f'{rule}_')]}, {words}"
    plain = row.removeprefix("first_convolutional_")
    if plain not in _LABELS:
        return row
    return _LABELS[plain] if plain == row else _LABELS[plain].replace("LC", "LC (1st layer conv)")
