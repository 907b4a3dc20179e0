"""`make release` in a clone of this repository: what it refuses, and what it leaves behind."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
AS_IF = {"user.name": "Someone", "user.email": "someone@example.org"}


def git(clone: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=clone, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The tracked files as they are now, as a repository with one commit."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: a release is made from one")
    folder = tmp_path / "clone"
    kinds = ("--cached", "--others", "--exclude-standard")
    places = (
        "src",
        "tools",
        "docs/install.md",
        "README.md",
        "CHANGELOG.md",
        "CITATION.cff",
        "pyproject.toml",
    )
    tracked = git(ROOT, "ls-files", *kinds, *places, "LICENSE", ".gitignore")
    for name in tracked.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())
    git(folder, "init", "-q")
    for key, value in AS_IF.items():
        git(folder, "config", key, value)
    changelog = folder / "CHANGELOG.md"
    changelog.write_text(
        "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Something.\n\n## [0.1.0]\n\n- The beginning.\n"
    )
    commit(folder)
    return folder


def commit(clone: Path) -> None:
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "As it is")


def release(clone: Path, version: str, check: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "tools/release.py", version, "--check", check]
    return subprocess.run(command, cwd=clone, capture_output=True, text=True)


def test_a_release_builds_checks_and_tags(clone: Path) -> None:
    pytest.importorskip("hatchling")
    done = release(
        clone, "9.8.7", check=f'{sys.executable} -c \'assert "9.8.7" in open("CITATION.cff").read()\''
    )
    assert done.returncode == 0, done.stderr
    assert git(clone, "describe", "--tags", "--exact-match") == "v9.8.7"
    assert git(clone, "status", "--porcelain") == ""
    assert {path.name for path in (clone / "dist").iterdir()} == {
        "monocal-9.8.7-py3-none-any.whl",
        "monocal-9.8.7.tar.gz",
    }
    assert '__version__ = "9.8.7"' in (clone / "src/monocal/__init__.py").read_text()
    assert "monocal-9.8.7-py3-none-any.whl" in (clone / "README.md").read_text()
    changelog = (clone / "CHANGELOG.md").read_text()
    assert re.search(
        r"## \[Unreleased\]\n\n## \[9\.8\.7\] - \d{4}-\d\d-\d\d\n\n### Added\n\n- Something\.", changelog
    )
    again = release(clone, "9.8.8")
    assert again.returncode == 1
    assert "says nothing under Unreleased" in again.stderr


@pytest.mark.parametrize(
    ("file", "text", "version", "said"),
    [
        ("README.md", None, "9.8.7", "changes that are not committed"),
        (
            "CHANGELOG.md",
            "## [Unreleased]\n\n## [0.1.0]\n\n- Old.\n",
            "9.8.7",
            "says nothing under Unreleased",
        ),
        ("CHANGELOG.md", "## [Unreleased]\n\n- TODO: say it\n", "9.8.7", "is unfinished: - TODO: say it"),
        ("CHANGELOG.md", "## [Unreleased]\n\n- New.\n\n## [9.8.7]\n", "9.8.7", "has a section 9.8.7 already"),
        ("CITATION.cff", "title: x\n", "9.8.7", "CITATION.cff does not say the version"),
        ("LICENSE", "MIT\n", "nine", "'nine' is no version"),
        ("LICENSE", "MIT\n", "0.0.1", "0.0.1 is not newer than 0.1.0, which is tagged"),
    ],
)
def test_what_is_not_ready_is_refused(
    clone: Path, file: str, text: str | None, version: str, said: str
) -> None:
    git(clone, "tag", "v0.1.0")
    path = clone / file
    path.write_text(text or path.read_text() + "\nmore\n")
    if text:
        commit(clone)
    before = git(clone, "status", "--porcelain")
    refused = release(clone, version)
    assert refused.returncode == 1
    assert said in refused.stderr
    assert git(clone, "status", "--porcelain") == before
    assert git(clone, "tag") == "v0.1.0"


def test_a_check_that_fails_leaves_the_tree_as_it_was(clone: Path) -> None:
    refused = release(clone, "9.8.7", check="false")
    assert refused.returncode == 1
    assert "'false' failed" in refused.stderr
    assert git(clone, "status", "--porcelain") == ""
    assert git(clone, "tag") == ""
