"""What a run's folder says of the machine and the versions."""

from tacit.training import run_folder


def test_what_runs_from_its_sources_has_no_version(monkeypatch):
    """A long run must not fail in its last line for that."""
    monkeypatch.setattr(run_folder, "_PACKAGES", ("a package that nobody installed", "torch"))
    assert list(run_folder.versions()) == ["python", "tacit_sources", "torch"]


def test_other_sources_have_another_digest(monkeypatch, tmp_path):
    """Every version in between two releases has the same number."""

    def digest(**files):
        (tmp_path / "tacit" / "training").mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / "tacit" / f"{name}.py").write_text(text)
        run_folder._digest_of_sources.cache_clear()
        return run_folder.versions()["tacit_sources"]

    real = run_folder.versions()["tacit_sources"]
    monkeypatch.setattr(run_folder, "__file__", str(tmp_path / "tacit" / "training" / "run_folder.py"))
    try:
        assert len({real, digest(a="x", b=""), digest(a="x", b="y"), digest(a="xy", b=""), digest(c="")}) == 5
        assert digest() == digest()
    finally:
        run_folder._digest_of_sources.cache_clear()
