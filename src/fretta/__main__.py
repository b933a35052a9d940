"""`fretta` and `python -m fretta`: Ctrl-C while modules load ends without a traceback."""

from __future__ import annotations

import signal


def main() -> None:
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command begins: cli/app.py
    from .cli import main as command

    command()


if __name__ == "__main__":
    main()
