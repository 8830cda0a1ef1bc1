"""``python -m structgen``: the same as the ``structgen`` command."""

from structgen.cli import main

if __name__ == "__main__":
    main()
