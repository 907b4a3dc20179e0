"""Files appear whole or not at all:  write in a hidden folder beside the target, then rename onto it.

``os.replace`` within one file system is atomic, so a reader sees the old file or the new one, and a run that fails or is stopped
midway leaves the old one (or nothing) behind. Only the user can look into the hidden folder, so the content of a file that was
private never shows. A pipe or a device is no file to replace: it gets the finished bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from monocal.errors import FileError, InputError, MissingExtraError, spoken
from monocal.io.sources import as_path
from monocal.stopping import undone_if_stopped

_DISK = tuple(map(os.strerror, (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO)))


@contextmanager
def atomic_path(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[Path]:
    """Give a temporary path to write to, which becomes ``path`` when the block ends without an error.

    Parameters
    ----------
    path : path
        The file to make. Its folder must exist. A file that is replaced keeps its permissions; a pipe or a device is
        written to.
    force : bool, default=False
        Replace an existing file instead of refusing.

    Yields
    ------
    Path
        A path on the same disk with the same name; nothing is there yet.

    Examples
    --------
    >>> from pathlib import Path
    >>> from monocal.io import atomic_path
    >>> with atomic_path("report.html") as temporary:
    ...     characters = temporary.write_text("<p>done</p>")
    >>> Path("report.html").read_text()
    '<p>done</p>'
    """
    target = as_path(path)
    try:
        target = target.resolve()
        stream = _check_target(target, force)
        # A pipe may stand where no folder can be made, such as in /dev.
        folder = Path(tempfile.gettempdir()) if stream else target.parent
        hidden = folder / f".{target.stem[:40]}.{secrets.token_hex(6)}"
    except (
        OSError,
        RuntimeError,
    ) as error:  # links that lead to each other are a RuntimeError to Python 3.11
        raise _not_written(target, error) from error
    remove = partial(shutil.rmtree, hidden, ignore_errors=True)
    temporary = hidden / target.name
    with undone_if_stopped(remove):
        try:
            hidden.mkdir(mode=0o700)
            yield temporary
            _put(temporary, target, force)
        except OSError as error:
            named = error.filename
            if named is not None and not str(os.fspath(named)).startswith((str(hidden), str(target))):
                raise  # of another file, such as one that is read
            raise _not_written(target, error, temporary) from error
        finally:
            remove()


def _check_target(target: Path, force: bool) -> bool:
    """Refuse what cannot be written; whether it is a pipe or a device."""
    if target.is_dir():
        raise FileError(f"{target} is a folder: give the name of a file to write.")
    if not target.parent.is_dir():
        raise FileError(f"{target} cannot be written: there is no folder {target.parent}; make it first.")
    if not target.exists():
        return False
    if target.is_fifo() or target.is_char_device():
        return True
    if not target.is_file():
        raise FileError(f"{target} is neither a file nor a pipe: give the name of a file to write.")
    if not force:
        raise FileError(
            f"{target} exists already and was left as it is: choose another name or use {spoken('force')}."
        )
    return False


def _put(temporary: Path, target: Path, force: bool) -> None:
    if not temporary.is_file():
        raise FileError(f"{target} was not written: nothing was put at the temporary path.")
    if _check_target(target, force):  # again: somebody may have made it meanwhile
        with open(temporary, "rb") as source, open(target, "wb") as stream:
            shutil.copyfileobj(source, stream)
        return
    with contextlib.suppress(FileNotFoundError):
        _keep_permissions(temporary, target.stat())
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())  # a rename must not reach the disk before the content
    if not force:
        # A link fails where somebody has made the file meanwhile; not every file system has links.
        try:
            os.link(temporary, target)
        except FileExistsError:
            _check_target(target, force)
            raise
        except OSError:
            os.replace(temporary, target)
        return
    os.replace(temporary, target)


def _keep_permissions(temporary: Path, old: os.stat_result) -> None:
    if hasattr(os, "chown"):
        with contextlib.suppress(PermissionError):
            os.chown(temporary, old.st_uid, old.st_gid)
    os.chmod(temporary, stat.S_IMODE(old.st_mode))


def _not_written(target: Path, error: OSError | RuntimeError, temporary: Path | None = None) -> FileError:
    """One sentence about a file that could not be written; it names the file asked for, not the temporary one."""
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    # What libraries wrap into long texts of their own.
    reason = next((known for known in _DISK if known in reason), reason)
    if temporary is not None:
        reason = reason.replace(str(temporary), target.name)
    reason = " ".join(reason.split())[:200]
    return FileError(f"{target} could not be written: {reason}; choose another place or free it.")


@contextmanager
def library_writes() -> Iterator[None]:
    """Turn whatever a library raises while it writes into an OSError, from which `atomic_path` makes one sentence.

    Those in other languages report a full disk in many ways.
    """
    try:
        yield
    except (InputError, MissingExtraError, MemoryError, OSError):
        raise
    except Exception as error:  # each library has its own
        raise OSError(str(error) or type(error).__name__) from error


def allocate(fd: int, size: int) -> None:
    """Take ``size`` bytes of the disk for a new file, so that a full one is noticed before the work, not after it."""
    if not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS):  # it cannot tell
            raise
