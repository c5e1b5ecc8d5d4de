"""Reports: runs as one self-contained HTML page."""

from sleepconv.experiments.report.page import write_report

__all__ = ["write_report"]
