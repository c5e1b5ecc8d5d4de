"""Many runs: whole tables and grid searches, on the cores of this machine or on a Ray cluster."""

from sleepconv.sweep.jobs import Job, jobs_for, names_in
from sleepconv.sweep.processes import Processes
from sleepconv.sweep.ray_tasks import RayTasks
from sleepconv.sweep.search import Search, conclude, find_searches
from sleepconv.sweep.sweep import Outcome, sweep
from sleepconv.sweep.workers import Orders

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
