"""A release in one command:  make release VERSION=0.2.0

1. It refuses a tree with changes that are not committed, a version that is not newer, and a changelog without a finished section
   *Unreleased*.
2. It writes the version where it stands (the package, the citation, the name of the wheel in the pages) and turns *Unreleased*
   into the version with its date.
3. It runs ``make test``, builds wheel and source into dist/ and looks into both.
4. It commits and tags. Nothing leaves the machine: the last lines say what to push and what to upload.

If anything fails the tree is as it was.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tarfile
import zipfile
from datetime import date
from email import message_from_string
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WHEEL = re.compile(r"monocal-[\d.]+-py3-none-any\.whl")
# Where the version stands: the file, what to look for, what to put there.
PLACES = {
    "src/monocal/__init__.py": (
        re.compile(r'^__version__ = ".*"$', re.MULTILINE),
        '__version__ = "{version}"',
    ),
    "CITATION.cff": (re.compile(r"^version: .*$", re.MULTILINE), "version: {version}"),
    "README.md": (WHEEL, "monocal-{version}-py3-none-any.whl"),
    "docs/install.md": (WHEEL, "monocal-{version}-py3-none-any.whl"),
    "CHANGELOG.md": (
        re.compile(r"^## \[Unreleased\]$", re.MULTILINE),
        "## [Unreleased]\n\n## [{version}] - {today}",
    ),
}


class Refused(Exception):
    """Why there is no release, in a sentence."""


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def numbers(version: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise Refused(f"{version!r} is no version: three numbers are, as 0.2.0.")
    return tuple(map(int, version.split(".")))


def refuse_what_is_not_ready(version: str) -> None:
    """Raise unless the tree, the version and the changelog are ready."""
    changed = git("status", "--porcelain")
    if changed:
        raise Refused(f"There are changes that are not committed:\n{changed}")
    tags = [tag for tag in git("tag", "--list", "v*.*.*").split() if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    newest = max((numbers(tag[1:]) for tag in tags), default=(0, 0, 0))
    if numbers(version) <= newest:
        raise Refused(f"{version} is not newer than {'.'.join(map(str, newest))}, which is tagged.")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE)
    if section is None or not re.search(r"^- \S", section[1], re.MULTILINE):
        raise Refused("CHANGELOG.md says nothing under Unreleased: what has changed?")
    unfinished = re.search(r"^.*\b(TODO|FIXME|TBD|XXX)\b.*$", section[1], re.MULTILINE)
    if unfinished:
        raise Refused(f"CHANGELOG.md is unfinished: {unfinished[0]}")
    if f"## [{version}]" in changelog:
        raise Refused(f"CHANGELOG.md has a section {version} already.")


def write_version(version: str) -> None:
    for name, (result, put) in PLACES.items():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        if not result.search(text):
            raise Refused(f"{name} does not say the version where it is looked for.")
        path.write_text(result.sub(put.format(version=version, today=date.today()), text), encoding="utf-8")


def build(version: str) -> list[Path]:
    """Wheel and source in dist/."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", "dist"], cwd=ROOT, check=True)
    built = [ROOT / "dist" / f"monocal-{version}{end}" for end in ("-py3-none-any.whl", ".tar.gz")]
    missing = [path.name for path in built if not path.exists()]
    if missing:
        raise Refused(f"The build made no {' and no '.join(missing)}.")
    return built


def look_into(wheel: Path, source: Path, version: str) -> None:
    """The metadata are complete and true, and nothing is missing or too much."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = message_from_string(archive.read(f"monocal-{version}.dist-info/METADATA").decode("utf-8"))
    with tarfile.open(source) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    expected = {"Name": "monocal", "Version": version, "Description-Content-Type": "text/markdown"}
    wrong = {key: metadata[key] for key, value in expected.items() if metadata[key] != value}
    if wrong:
        raise Refused(f"The metadata of {wheel.name} are wrong: {wrong}")
    if not str(metadata.get_payload()).lstrip().startswith("# monocal"):
        raise Refused(f"{wheel.name} does not hold the README.")
    package = {
        str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*") if path.suffix == ".py"
    }
    missing = sorted((package | {"monocal/py.typed"}) - names)
    too_much = sorted(name for name in names if not name.startswith(("monocal/", "monocal-")))
    lacking = sorted({"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} - sources)
    if missing or too_much or lacking:
        raise Refused(f"The build is wrong: missing {missing + lacking}, too much {too_much}.")


def release(version: str, check: str) -> None:
    """All of it; the tree is as it was if it fails."""
    refuse_what_is_not_ready(version)
    try:
        write_version(version)
        if check and subprocess.call(check, shell=True, cwd=ROOT):
            raise Refused(f"{check!r} failed.")
        wheel, source = build(version)
        look_into(wheel, source, version)
    except BaseException:
        git("checkout", "--", *PLACES)
        raise
    git("commit", "-q", "-m", f"Release {version}", "--", *PLACES)
    git("tag", "-a", f"v{version}", "-m", f"monocal {version}")
    sys.stdout.write(
        f"Tagged v{version}; dist/ holds {wheel.name} and {source.name}.\n"
        f"To publish: git push --follow-tags, then upload both files of dist/.\n"
        f"To take it back: git tag -d v{version} && git reset --hard HEAD~1\n"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", help="as 0.2.0")
    parser.add_argument("--check", default="make test", help="what must succeed before it is tagged")
    options = parser.parse_args(arguments)
    try:
        release(options.version, options.check)
    except (Refused, subprocess.CalledProcessError) as problem:
        sys.stderr.write(f"No release: {problem}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
