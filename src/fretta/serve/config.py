"""The service as a file that `serve deploy` takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import MissingExtraError
from .local import here
from .settings import Settings

HEAD = """\
# fretta as a Ray Serve application. On the head of a cluster:  serve deploy {name}
# The token is not in here: set FRETTA_TOKEN under env_vars, from a place that keeps secrets.
# Paths (weights, store, ...) must be the same on every node; store= takes URLs such as s3://.
"""


def write_yaml(settings: Settings, path: Path) -> None:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyyaml", "serve", "the configuration of a service") from error
    text = yaml.safe_dump(config(here(settings)), sort_keys=False)
    path.write_text(HEAD.format(name=path.name) + text, encoding="utf-8")


def config(settings: Settings) -> dict[str, Any]:
    """As Serve's schema has it."""
    return {
        "proxy_location": "EveryNode",
        "http_options": {"host": settings.host, "port": settings.port},
        "applications": [
            {
                "name": "fretta",
                "route_prefix": "/",
                "import_path": "fretta.serve.deployment:build",
                "runtime_env": {"env_vars": {}},
                "args": settings.to_dict(),
            }
        ],
    }
