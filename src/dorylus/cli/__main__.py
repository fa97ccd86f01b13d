"""``python -m dorylus.cli`` is the ``dorylus`` program."""

from dorylus.cli import main

main()
