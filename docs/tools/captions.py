"""MkDocs hook: the caption in a picture, also as text, which the style sheet shows where the picture is small."""

import html
import re
from pathlib import Path
from typing import Any

from PIL import Image

PICTURES = Path(__file__).parents[1] / "pictures"
SHOWN = re.compile(r'<img [^>]*src="[^"]*pictures/(figure-[^"/]*\.png)"[^>]*/?>')


def on_page_content(content: str, **_: Any) -> str:
    """Add its caption to every figure of a page that has one."""
    return SHOWN.sub(lambda image: image[0] + _caption(PICTURES / image[1]), content)


def _caption(path: Path) -> str:
    with Image.open(path) as picture:
        text = picture.info.get("Description", "")
    return f'<span class="caption">{html.escape(" ".join(text.split()))}</span>' if text else ""
