"""What an evaluation left on disk. Nothing that computes is imported, so that to ask how far it is takes no time.

::

    rows/<unit>.npz, results/<unit>.json     what was scored; the second is written last
    analyses/<unit>/<name>.json, <name>/…    what an analysis measured, after the files that it wrote
    comparisons/<name>.json                  what was measured over all collections
    report.html, plots/, table.md            made of these
    results.json                             all of them together, and hashes of these; written last of all

Every record is sealed (``pipeline/sealed.py``). One that is damaged counts as missing where its absence is asked for
often, and is named, and taken away, by ``_damage.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pipeline.analyses.base import Analysis, CollectionAnalysis, Comparison, NotApplicable, Values
from pipeline.errors import DamagedError, UserError
from pipeline.files import sha256_file, write_bytes
from pipeline.interruption import stop_if_asked
from pipeline.places import Place
from pipeline.progress import Progress
from pipeline.sealed import read_open, write_sealed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pipeline.evaluation.collection import Collection
    from pipeline.report.build import About

PAGES = ("report.html", "table.md")


class Records:
    """The records below the folder of a run.

    Args:
        folder: of the run.
        units: ids of the collections, the upstream one first.
        analyses: that are asked for.
    """

    def __init__(self, folder: Place, units: Sequence[str], analyses: Sequence[Analysis]) -> None:
        self.folder = folder
        self.units = units
        self.versions = {item.name: item.version for item in analyses}
        self.of_collections = [item for item in analyses if isinstance(item, CollectionAnalysis)]
        self.comparisons = [item for item in analyses if isinstance(item, Comparison)]
        self.together = folder / "results.json"

    def result(self, unit: str) -> Place:
        """The plain results of a collection."""
        return self.folder / "results" / f"{unit}.json"

    def table(self, unit: str) -> Place:
        """What was said of each of its rows."""
        return self.folder / "rows" / f"{unit}.npz"

    def of(self, unit: str) -> Place:
        """Folder of a collection's analyses."""
        return self.folder / "analyses" / unit

    @property
    def of_all(self) -> Place:
        """Folder of the comparisons."""
        return self.folder / "comparisons"

    # -- how far

    def missing(self, unit: str) -> list[CollectionAnalysis]:
        """The analyses that a collection lacks, or has of another version."""
        return [item for item in self.of_collections if not _is_current(item, self.of(unit))]

    def scored(self, unit: str) -> dict[str, Any] | None:
        """The plain results of a collection; None where it is not scored."""
        return whole(self.result(unit))

    def measured(self, unit: str) -> dict[str, Any] | None:
        """The plain results of a collection that is scored and lacks no analysis."""
        return None if self.missing(unit) else self.scored(unit)

    def is_reported(self) -> bool:
        """Whether there is a report, with all analyses that are asked for in the version that they have now."""
        together = whole(self.together)
        if together is None or not all((self.folder / name).exists() for name in PAGES):
            return False
        shown = together["analyses"]
        shown = shown if isinstance(shown, dict) else dict.fromkeys(shown, 1)  # a list, before there were versions
        return all(shown.get(name) == version for name, version in self.versions.items())

    def results(self) -> list[dict[str, Any]]:
        """The plain results of the collections that are scored."""
        return [result for unit in self.units if (result := self.scored(unit)) is not None]

    # -- writing

    def begin(self, unit: str) -> None:
        """Take away what is there of a collection, and of all together: it is scored anew."""
        for folder in (self.of(unit), self.of_all):
            if folder.is_dir():
                for record in folder.glob("*.json"):
                    record.unlink()

    def write_scored(self, unit: str, columns: Mapping[str, NDArray[Any]], result: Mapping[str, Any]) -> None:
        """Write the table of rows and, last, the result of a collection."""
        from pipeline.evaluation.table import write_table

        self.begin(unit)
        write_table(self.table(unit), columns)
        write_sealed(self.result(unit), {**result, "id": unit, "rows_sha256": sha256_file(self.table(unit))})

    def require(self) -> None:
        """Refuse analyses whose packages are not installed, before anything is done for them.

        Raises:
            UserError: names them, and the command that installs them.
        """
        for item in self.of_collections:
            if item.lacking and any(item in self.missing(unit) for unit in self.units):
                raise UserError(
                    f"evaluate.analyses: {item.name} needs {', '.join(item.lacking)}, which is not installed: "
                    f"pip install 'hedgerow[maps]'. Or leave it out: evaluate.analyses=[…,-{item.name}]."
                )

    def measure(self, collection: Collection, progress: Progress) -> None:
        """Do the analyses that a collection lacks."""
        missing = self.missing(collection.id)
        bar = progress.bar("analysing", len(missing), "analyses")
        for item in missing:
            stop_if_asked()
            values, absent = _asked(partial(item.measure, collection), item.needs.why_not(collection))
            files = item.files(collection, values) if values is not None else {}
            self._write(self.of(collection.id), item, values, absent, files, collection.result["rows_sha256"])
            bar.advance(1, analysis=item.name)
        bar.close()

    def compare(self, collections: Sequence[Collection], progress: Progress) -> None:
        """Do the comparisons that are missing."""
        missing = [item for item in self.comparisons if not _is_current(item, self.of_all)]
        bar = progress.bar("comparing", len(missing), "analyses")
        rows = {collection.id: collection.result["rows_sha256"] for collection in collections}
        for item in missing:
            stop_if_asked()
            values, absent = _asked(partial(item.compare, collections))
            self._write(self.of_all, item, values, absent, {}, rows)
            bar.advance(1, analysis=item.name)
        bar.close()

    def _write(
        self, folder: Place, item: Analysis, values: Values | None, absent: str, files: Mapping[str, bytes], rows: Any
    ) -> None:
        for file, data in files.items():
            write_bytes(folder / item.name / file, data)
        hashes = {file: sha256(data).hexdigest() for file, data in files.items()}
        named = {"analysis": item.name, "version": item.version}
        record = {**named, "values": values, "absent": absent or None, "files": hashes, "rows_sha256": rows}
        write_sealed(folder / f"{item.name}.json", record, sort_keys=False)  # contenders stay in order

    # -- together

    def read(self, folder: Place) -> dict[str, Any]:
        """Name → ``{values, absent, files, rows_sha256}`` of the analyses that are asked for, in a folder of them.

        Raises:
            DamagedError: a record is not what was written.
        """
        found = {name: folder / f"{name}.json" for name in self.versions}
        return {name: read_open(path) for name, path in found.items() if path.exists()}

    def write_report(self, about: About, name: str) -> None:
        """Write the report, its plots, the table, and last all results together."""
        from pipeline.report.build import write_report
        from pipeline.report.table import as_markdown

        results = [{**result, "analyses": self.read(self.of(result["id"]))} for result in self.results()]
        compared = self.read(self.of_all)
        write_report(self.folder, results, compared, about)
        write_bytes(self.folder / "table.md", as_markdown(results).encode())
        plots = sorted(path.name for path in (self.folder / "plots").glob("*.png"))
        together = {
            "experiment": name,
            "digest": about.digest,
            "results": results,
            "comparisons": compared,
            "analyses": self.versions,
            "files": {file: sha256_file(self.folder / file) for file in (*PAGES, *(f"plots/{plot}" for plot in plots))},
        }
        write_sealed(self.together, together)


def whole(place: Place) -> dict[str, Any] | None:
    """A record; None where there is none, or a damaged one."""
    try:
        return read_open(place)
    except (FileNotFoundError, DamagedError):
        return None


def _is_current(item: Analysis, folder: Place) -> bool:
    """Whether there is a record of an analysis, of its version; one that cannot be read is none."""
    record = whole(folder / f"{item.name}.json")
    return record is not None and record.get("version", 1) == item.version


def _asked(measure: Callable[[], Values], why_not: str = "") -> tuple[Values | None, str]:
    """The values, or why there are none."""
    if why_not:
        return None, why_not
    try:
        return measure(), ""
    except NotApplicable as reason:
        return None, str(reason)
