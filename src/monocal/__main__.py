"""``python -m monocal`` is the ``monocal`` command."""

from monocal.cli import main

if __name__ == "__main__":
    main()
