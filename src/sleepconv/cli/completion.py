"""``sleepconv completion``: a script that lets a shell complete verbs, options, recipes and tables."""

import argparse

from sleepconv.cli.verbs import Verbs

_SCRIPT = """\
# Completion of sleepconv's verbs, options and names, for bash and zsh. Made by `sleepconv completion`.
[ -n "$ZSH_VERSION" ] && autoload -U +X bashcompinit && bashcompinit
_sleepconv() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" path="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
{paths}
    esac
  done
  COMPREPLY=()
  case "$before" in
{values}
  esac
  local words=""
  case "$path" in
{words}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _sleepconv sleepconv
"""


def add_completion(verbs: Verbs, parser: argparse.ArgumentParser) -> None:
    """Add ``sleepconv completion``."""
    verb = verbs.add_parser(
        "completion",
        help="print a script that completes commands in bash and zsh",
        description="Print a script that lets bash or zsh complete what you type.",
        epilog='example: eval "$(sleepconv completion)", in ~/.bashrc or ~/.zshrc',
    )
    verb.set_defaults(run=lambda options: _completion(parser))


def _completion(parser: argparse.ArgumentParser) -> int:
    print(script(parser), end="")
    return 0


def script(parser: argparse.ArgumentParser) -> str:
    """Return the script: what may follow each verb is written into it, so that no Python runs while you type."""
    from sleepconv.experiments.paper import RECIPES, SEARCHES, TABLES
    from sleepconv.experiments.runs.registry import DATASETS

    tables = [table if isinstance(table, str) else f"table{table}" for table in TABLES]
    names = {
        "train": RECIPES,
        "sweep": [*tables, *RECIPES, *SEARCHES],
        "table": map(str, TABLES),
        **dict.fromkeys(["data get", "data check", "data show"], DATASETS),
    }
    found = _parsers(parser)
    words = {path: [*_words(one), *names.get(path, ())] for path, one in found.items()}
    choices = {
        option: action.choices
        for one in found.values()
        for action in one._actions
        for option in action.option_strings
        if action.choices
    }
    values = {"--dataset": DATASETS, **choices}
    return _SCRIPT.format(
        paths="\n".join(f'      "{_parent(path)} {path.split()[-1]}") path="{path}" ;;' for path in found if path),
        values="\n".join(
            f'    {option}) COMPREPLY=($(compgen -W "{" ".join(known)}" -- "$word")); return ;;'
            for option, known in values.items()
        ),
        words="\n".join(f'    "{path}") words="{" ".join(known)}" ;;' for path, known in words.items()),
    )


def _parsers(parser: argparse.ArgumentParser, path: str = "") -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each verb and action by the words that lead to it."""
    found = {path: parser}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found |= _parsers(below, f"{path} {name}".strip())
    return found


def _words(parser: argparse.ArgumentParser) -> list[str]:
    """Return the options of a parser, and the words that it chooses from."""
    options = [option for action in parser._actions for option in action.option_strings if option.startswith("--")]
    return [*(word for action in parser._get_positional_actions() for word in action.choices or ()), *options]


def _parent(path: str) -> str:
    return " ".join(path.split()[:-1])
