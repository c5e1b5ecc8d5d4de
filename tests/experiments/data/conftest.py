"""Tests of data leave the user's folders alone."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_data_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """No test writes to the user's folders; only those of real data read from them."""
    if "real_data" not in request.fixturenames:
        monkeypatch.setenv("SLEEPCONV_DATA", str(tmp_path / "data"))
        monkeypatch.delenv("SLEEPCONV_CACHE", raising=False)
