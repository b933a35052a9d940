"""Which batches a reference sees beside the adapted model."""

from __future__ import annotations

MANY = 64  # images of one look


class Looks:
    """The first images in full, then a share of them, and whatever is asked for.

    A look is at `MANY` images or more, so at several small batches in a row.
    """

    def __init__(self, share: float, first: int) -> None:
        self.share = share
        self.left = first  # images still to be seen in full
        self.owed = 0.0  # images still to be seen by the share

    def ask(self, images: int) -> None:
        """Look at so many from the next batch on."""
        self.left = max(self.left, images)

    def due(self, n: int, now: bool) -> bool:
        """Whether to look at this batch of n images; `now`: in any case."""
        self.owed += n * self.share
        if self.owed >= MANY:
            self.ask(MANY)
        due = now or self.left > 0
        if due:
            self.left = max(0, self.left - n)
            self.owed = max(self.owed - n, min(0, MANY - n))
        return due

    def state_dict(self) -> list[float]:
        return [self.left, self.owed]

    def load_state_dict(self, state: list[float]) -> None:
        self.left, self.owed = int(state[0]), state[1]
