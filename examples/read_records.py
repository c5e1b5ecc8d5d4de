"""Read the records of runs into pandas: one line per run, and the learning curves. Give the folders as arguments."""

import sys

from sleepconv.experiments.runs import find_runs

runs = find_runs(*(sys.argv[1:] or ["results", "runs"]))
rows = [{**vars(run.recipe()), **(run.summary() or {}), "path": str(run.path)} for run in runs]
curves = [{"name": run.recipe().name, **report} for run in runs for report in run.metrics("evaluation")]
try:
    import pandas
except ImportError:
    print(f"{len(rows)} runs, {len(curves)} evaluations; pip install pandas to see them as tables")
else:
    shown = ["name", "scale", "seed", "top1", "top5", "seconds"]
    print(pandas.DataFrame(rows, columns=[*shown, "path"])[shown].to_string())
    print(pandas.DataFrame(curves, columns=["name", "epoch", "top1", "top5", "steps_since_sleep"]).to_string())
