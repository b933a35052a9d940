"""corrupt_folder(): the corrupted version of a data set on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..corruptions.constants import CORRUPTIONS, EXTRA, check_name, constants_for
from ..corruptions.frost import photographs
from ..errors import ConfigError, DataError
from .write import Order, Progress, Summary, Workers
from .write_cifar import find_test_batch, write_cifar
from .write_images import write_images

__all__ = ["Summary", "corrupt_folder"]


def _names(corruptions: str | Sequence[str]) -> tuple[str, ...]:
    groups = {"all": CORRUPTIONS, "extra": EXTRA}
    asked = [corruptions] if isinstance(corruptions, str) else list(corruptions)
    names = [name for entry in asked for name in groups.get(entry, (entry,))]
    if not names:
        raise ConfigError("corruption= names none; give names, or 'all' for the 15")
    return tuple(dict.fromkeys(check_name(name) for name in names))


def _severities(severities: int | Sequence[int]) -> tuple[int, ...]:
    asked = [severities] if isinstance(severities, int) else list(severities)
    if not asked or any(isinstance(s, bool) or s not in range(1, 6) for s in asked):
        raise ConfigError(f"severities is {severities!r}; files hold whole severities, 1 to 5")
    return tuple(sorted({int(s) for s in asked}))


def corrupt_folder(
    src: str | Path,
    dst: str | Path,
    corruptions: str | Sequence[str] = "all",
    severities: int | Sequence[int] = (1, 2, 3, 4, 5),
    *,
    seed: int = 0,
    jobs: int = 1,
    progress: Progress | None = None,
    constants: str | None = None,
    errors: str = "raise",
) -> Summary:
    """Write the corrupted version of `src` to `dst`.

    A CIFAR folder (its test batch) becomes the CIFAR-C layout; any other folder of images, however
    nested, the ImageNet-C layout. Run again to continue: what is complete is kept. The files are
    the same for any number of `jobs`.

    corruptions  names, or "all" (the 15 of the benchmark), or "extra" (the other four)
    progress     called with (images done, images in total)
    errors       unreadable images: "raise" a DataError that names the file, or "skip" them and list
                 them in the summary
    """
    source, folder = Path(src), Path(dst)
    order = Order(_names(corruptions), _severities(severities), int(seed), constants)
    constants_for(order.names[0], 1, 32, 32, constants)  # refuses an unknown set before any work
    if errors not in ("raise", "skip"):
        raise ConfigError(f"errors is {errors!r}; give 'raise' or 'skip'")
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ConfigError(f"jobs is {jobs!r}; give the number of processes, 1 or more")
    if not source.is_dir():
        raise DataError(f"there is no folder {source}; give a CIFAR folder or a folder of images")
    if folder.resolve().is_relative_to(source.resolve()):
        raise ConfigError(
            f"{folder} lies inside {source}: the results would be taken for sources next time. "
            "Choose a folder outside"
        )
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, and the corrupted version is a folder of files")
    if "frost" in order.names:
        photographs()  # warns here, once, if they are missing
    batch = find_test_batch(source)
    with Workers(jobs) as workers:
        if batch is not None:
            return write_cifar(batch, folder, order, workers, progress)
        return write_images(source, folder, order, workers, progress, errors)
