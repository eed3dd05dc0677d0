"""What a run's folder says of the machine and the versions."""

from tacit.training import run_folder


def test_what_runs_from_its_sources_has_no_version(monkeypatch):
    """A long run must not fail in its last line for that."""
    monkeypatch.setattr(run_folder, "_PACKAGES", ("a package that nobody installed", "torch"))
    assert list(run_folder.versions()) == ["python", "torch"]
