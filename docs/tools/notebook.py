"""Run the cells of the quick start notebook and keep what they return: ``python docs/tools/notebook.py``."""

import ast
import json
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parents[2] / "examples" / "quick_start.ipynb"


def executed(notebook: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the notebook with the outputs of its cells, and the names that they leave."""
    names: dict[str, Any] = {}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            value = _run("".join(cell["source"]), cell["id"], names)
            cell = cell | {"execution_count": count, "outputs": [] if value is None else [_output(value, count)]}
        cells.append(cell)
    return notebook | {"cells": cells}, names


def _run(source: str, name: str, names: dict[str, Any]) -> Any:
    """Run a cell as a kernel would; return the value of its last line if that is an expression."""
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        body.append(last)
    exec(compile(ast.Module(body, []), name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names) if isinstance(last, ast.Expr) else None


def _output(value: Any, count: int) -> dict[str, Any]:
    text = repr(value).splitlines(keepends=True)
    return {"data": {"text/plain": text}, "execution_count": count, "metadata": {}, "output_type": "execute_result"}


if __name__ == "__main__":
    notebook, _ = executed(json.loads(NOTEBOOK.read_text()))
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
