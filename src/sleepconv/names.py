"""Suggestions for mistyped names."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a suggestion of the known name closest to this one, ignoring case and dashes; "" if none is close.

    >>> did_you_mean("CIFAR10-local", ["cifar10_local", "cifar100_local"])
    "; did you mean 'cifar10_local'?"
    >>> did_you_mean("zzz", ["cifar10_local"])
    ''
    """
    plain = {_plain(each): each for each in known}
    near = get_close_matches(_plain(name), plain, n=1)
    return f"; did you mean {plain[near[0]]!r}?" if near else ""


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
