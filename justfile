# The commands of a clone: just NAME (https://just.systems, or pip install rust-just).
export PATH := justfile_directory() / ".venv/bin:" + env("PATH")

# show these commands
default:
    @just --list --unsorted

# set up a clone: an environment with everything
setup:
    python3 -m venv .venv
    pip install -e '.[dev]'

# fast tests, or those named
test *args:
    pytest {{args}}

# slow tests
rest *args:
    pytest --rest {{args}}

# lint, format, types
check:
    ruff check --fix
    ruff format
    mypy --strict structgen tests/static
    basedpyright --level error tests/static

# run the code of pages
snippets *pages:
    python .ci/snippets.py {{pages}}

# the site, at http://127.0.0.1:8000
site:
    mkdocs serve

# everything that a change must pass
ci:
    bash .ci/run
