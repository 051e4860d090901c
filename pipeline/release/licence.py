"""Under which licence a backbone's weights come, as far as it can be known without asking anyone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.backbones import network_class
from pipeline.backbones.settings import BackboneConfig

Include = Literal[
    "auto", "yes", "no"
]  # the weights in a release; auto: if the licence permits and they are small enough
#: Licences that let anyone pass the weights on. Identifiers of https://spdx.org/licenses/, in lower case.
PERMISSIVE = frozenset({"apache-2.0", "mit", "bsd-2-clause", "bsd-3-clause", "cc0-1.0", "cc-by-4.0"})


@dataclass(frozen=True, kw_only=True)
class Licence:
    """``name``: SPDX identifier in lower case, or ``unknown``. ``said_by``: where that was read, for the model card."""

    name: str
    said_by: str

    @property
    def permits_copies(self) -> bool:
        """Whether a release may carry the weights without asking."""
        return self.name in PERMISSIVE


def backbone_licence(config: BackboneConfig) -> Licence:
    """The licence of the weights that ``config`` names; ``unknown`` where nobody says."""
    name, said_by = network_class({"source": config.source}).licence(config)
    return Licence(name=name, said_by=said_by)
