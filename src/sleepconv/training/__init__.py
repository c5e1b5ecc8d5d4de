"""Training: for now, the process settings that make it fast."""

from sleepconv.training.memory import keep_freed_memory

__all__ = ["keep_freed_memory"]
