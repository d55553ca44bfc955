"""``python -m roofplan``."""

from .cli import main

main()
