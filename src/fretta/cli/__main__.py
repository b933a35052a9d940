"""`python -m fretta.cli`."""

from . import main

main()
