"""Text files that are written whole or not at all."""

import os
from pathlib import Path


def write_atomically(target: Path, text: str) -> None:
    """Write a text file so that a reader sees the old one or the new one, never a part; its folder is made if need be.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "new" / "note.txt"
    >>> write_atomically(file, "γ")
    >>> file.read_text(encoding="utf-8"), [path.name for path in file.parent.iterdir()]
    ('γ', ['note.txt'])
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, target)
    except OSError as error:
        error.filename = error.filename or os.fspath(target)  # a full disk does not say which file it was
        raise
    finally:
        draft.unlink(missing_ok=True)
