"""Names that were mistyped."""

from collections.abc import Iterable
from difflib import get_close_matches
from itertools import islice

_SHOWN = 30


def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None) -> str:
    """Suggest the known name that is most like this one, whatever its case and dashes, as the end of an error message.

    Args:
        name: what was typed.
        known: what there is.
        otherwise: what to say if nothing is near; by default, what there is.

    >>> did_you_mean("CIFAR10-local", ["cifar10_local", "cifar100_local"])
    "; did you mean 'cifar10_local'?"
    >>> did_you_mean("zzz", ["cifar10_local", "cifar100_local"])
    '; there are cifar10_local, cifar100_local'
    """
    plain = {_plain(each): each for each in known}
    near = get_close_matches(_plain(name), plain, n=1)
    if near:
        return f"; did you mean {plain[near[0]]!r}?"
    shown = ", ".join(islice(plain.values(), _SHOWN)) + (", ..." if len(plain) > _SHOWN else "")
    return f"; {otherwise or f'there are {shown}'}"


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
