"""Workers on a Ray cluster."""

from typing import Any

from sleepconv.experiments.sweep.jobs import Job
from sleepconv.experiments.sweep.workers import JobFailedError, Orders, WorkerDiedError, carry_out


class RayTasks:
    """Workers on a Ray cluster. All nodes see the same folders, and have sleepconv installed.

    >>> sweep(jobs, RayTasks("auto", Orders(threads=4)), say=print)  # doctest: +SKIP
    """

    def __init__(self, address: str, orders: Orders) -> None:
        try:
            import ray
        except ImportError as error:
            raise ImportError("Ray is not installed: pip install 'sleepconv[ray]'") from error
        self.ray, self.orders = ray, orders
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except ConnectionError as error:
            raise ConnectionError(f"no Ray cluster answers at {address}: {error}") from error
        resources: dict[str, Any] = ray.cluster_resources()
        gpus = 1 if resources.get("GPU") else 0
        self.count = max(1, int(resources["GPU"] if gpus else resources.get("CPU", 1) // orders.threads))
        # Ray's own retries are off: the sweep counts and reports them the same way everywhere.
        self.task = ray.remote(num_cpus=orders.threads, num_gpus=gpus, max_retries=0, max_calls=1)(carry_out)

    def train(self, job: Job) -> None:
        """Train a run to its end in a task."""
        errors = self.ray.exceptions
        deaths = (errors.WorkerCrashedError, errors.NodeDiedError, errors.OutOfMemoryError)
        try:
            self.ray.get(self.task.remote(self.orders.of(job)))
        except deaths as error:
            raise WorkerDiedError(f"the worker died ({type(error).__name__})") from error
        except errors.RayTaskError as error:
            raise JobFailedError(str(error.cause)) from error

    def stop(self) -> None:
        """Leave the cluster: its tasks end with the driver."""
        self.ray.shutdown()
