"""Many runs: whole tables and grid searches, on the cores of this machine or on a Ray cluster."""

from sleepconv.experiments.runs.searches import Search, conclude, find_searches
from sleepconv.experiments.sweep.jobs import Job, jobs_for, names_in
from sleepconv.experiments.sweep.processes import Processes
from sleepconv.experiments.sweep.ray_tasks import RayTasks
from sleepconv.experiments.sweep.sweep import Outcome, sweep
from sleepconv.experiments.sweep.workers import Orders

__all__ = [
    "Job",
    "Orders",
    "Outcome",
    "Processes",
    "RayTasks",
    "Search",
    "conclude",
    "find_searches",
    "jobs_for",
    "names_in",
    "sweep",
]
