"""MkDocs hook: ``explore/index.html`` with its style sheet, font and modules within.

From the disk, browsers load no module, so the built page carries them as one. The sources need no build: served by any
web server, ``docs/explore/index.html`` is the same page. Each name at the top of a module is used in one module only.
"""

import base64
import re
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).parents[1] / "explore"
IMPORT = re.compile(r'^import [^"]*"\./([\w-]+\.js)";\n', re.M)


def on_post_build(config: Any, **_: Any) -> None:
    """Write the page beside the others."""
    out = Path(config["site_dir"]) / "explore"
    out.mkdir(exist_ok=True)
    (out / "index.html").write_text(page(), encoding="utf-8")


def page() -> str:
    """The page as one file."""
    text = (SOURCE / "index.html").read_text(encoding="utf-8")
    font = base64.b64encode((SOURCE / "math.woff2").read_bytes()).decode()
    style = (SOURCE / "style.css").read_text(encoding="utf-8").replace("math.woff2", f"data:font/woff2;base64,{font}")
    text = text.replace('<link rel="stylesheet" href="style.css">', f"<style>\n{style}</style>")
    return text.replace(' src="main.js"></script>', f">\n{script('main.js')}</script>")


def script(first: str) -> str:
    """A module after all that it imports, without the words that join them."""
    texts: dict[str, str] = {}

    def visit(name: str) -> None:
        if name not in texts:
            text = (SOURCE / name).read_text(encoding="utf-8")
            for needed in IMPORT.findall(text):
                visit(needed)
            texts[name] = re.sub(r"^export ", "", IMPORT.sub("", text), flags=re.M)

    visit(first)
    return "".join(texts.values())
