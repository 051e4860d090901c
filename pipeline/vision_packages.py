"""timm and torchvision, which both come with torchvision's compiled operators: these fit one build of torch alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from pipeline.errors import UserError


@contextmanager
def fitting_torch() -> Iterator[None]:
    """Import timm or torchvision inside.

    Raises:
        UserError: torchvision does not load beside this torch; says which versions these are, and how a pair is
            installed that fits.
    """
    try:
        yield
    except (ImportError, RuntimeError, OSError, AttributeError) as error:  # whatever its parts find first
        reason = " ".join(str(error).split())
        if "torchvision" not in reason:
            raise
        torch, torchvision = (_version(name) for name in ("torch", "torchvision"))
        raise UserError(
            f"{torch} and {torchvision} do not fit together ({reason}): one is of another version, or not built for "
            "CUDA alike. Install both anew in one command, so that they come from one place: pip install --upgrade "
            "--force-reinstall torch torchvision (with the same --index-url for both where one is given)."
        ) from error


def _version(package: str) -> str:
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"{package} (not installed)"
