"""The help pages: of the command, and of the keys of a stage."""

from __future__ import annotations

from cluster.compose import CONFIGS, GROUPS, compose, options
from cluster.overrides import ALL, DEFAULT_VERB, CommandLine, verb_options
from cluster.verbs import about, verb_names
from pipeline.config import parse
from stages.base import stage_class, stage_names

_EXAMPLES = {
    "dataset": "submit stage=pack dataset=openclipart dataset.root=/data/openclipart",
    "backbone": "submit stage=cache backbone=efficientnet_lite0",
    "head": "submit stage=train_head head=loss_prediction head.margin=0.2",
    "cluster": "submit stage=all cluster=local",
    "experiment": "submit plan experiment=demo_digits",
    "recipe": "submit stage=train_head recipe=fast",
}

_PAGE = """\
submit [verb] stage=<name> key=value …

Runs the stages of an experiment: each reads what the one before it made, does what is missing, and can be
stopped at any time; the same command goes on.

Verbs (the first word; submit if there is none)
{verbs}

Stages (stage=<name>, stage=[cache,train_head], stage=all: everything the released model is made from)
{stages}
  e.g. submit stage=cache          the keys of a stage: submit stage=cache --help

Groups (group=<name> takes configs/<group>/<name>.yaml)
{groups}

Keys
  <stage>.<key>=<value>, or <key>=<value> where only one of the chosen stages has it; lists as [1,2,3].
  e.g. submit stage=train_head seeds=[0,1] head.margin=0.2
  cluster.<key>: how and where jobs run; submit --help cluster=slurm lists them.
  name, data_root, runs_root: the run's name, where image collections lie, where run folders are made.
  downstream.<dataset>.<key>, compare.<head>.<key>, beside.<backbone>.<key>: of those named by evaluate.datasets,
  evaluate.compare and cache.beside.
  Your own defaults: configs/local.yaml (not in git), or --config-dir <folder with groups like configs/>.

Exit codes
  0 done   1 something failed   2 the command is wrong
  130 stopped with Ctrl-C, 143 with SIGTERM (kill); the same command goes on
"""


def page(line: CommandLine) -> str:
    """The help that a command line asks for: of its stages' keys if it names stages, else of the command."""
    executor = [_executor_page(line)] if any(item.startswith("cluster=") for item in line.overrides) else []
    if line.stages and ALL not in line.stages:
        return "\n\n".join([*_stage_pages(line), *executor])
    if executor:
        return executor[0]
    if line.verb != DEFAULT_VERB:
        return _verb_page(line.verb)
    verbs = [f"  {name:<10} {about(name)}" for name in verb_names()]
    stages = [f"  {name:<12} {_about_stage(name)}" for name in stage_names()]
    groups = [_group(line, group) for group in GROUPS]
    return _PAGE.format(verbs="\n".join(verbs), stages="\n".join(stages), groups="\n".join(groups))


def _verb_page(name: str) -> str:
    from cluster.describe import describe, table

    options = verb_options(name)
    keys = table(describe(options)) if options else ["  no keys of its own; those of the stages (submit help)"]
    words = f"[{options.words_are}] " if options and hasattr(options, "words") else ""
    return "\n".join([f"submit {name} {words}[key=value …]: {about(name)}", "", *keys])


def _executor_page(line: CommandLine) -> str:
    from cluster.describe import describe, table
    from cluster.executors import executor_class

    values = dict(compose(line.overrides, folders=line.folders).cluster)
    kind = values.pop("kind")
    cls = executor_class(kind)
    doc = (cls.__doc__ or "").strip().splitlines()[0]
    keys = describe(cls.Config, parse(cls.Config, values, "cluster"), "cluster.")
    return "\n".join([f"cluster.kind={kind}: {doc}", "", *table(keys)])


def _about_stage(name: str) -> str:
    """The first comment line of the stage's YAML: reading it imports nothing."""
    path = CONFIGS / "stage" / f"{name}.yaml"
    first = path.read_text(encoding="utf-8").splitlines()[0] if path.exists() else ""
    return first.lstrip("# ").removeprefix(f"submit stage={name}").lstrip(" —:") if first.startswith("#") else ""


def _group(line: CommandLine, group: str) -> str:
    names = ", ".join(options(group, line.folders))
    return f"  {group:<10} {names}\n  {'':<10} e.g. {_EXAMPLES[group]}"


def _stage_pages(line: CommandLine) -> list[str]:
    from cluster.describe import describe, table

    composed = compose(line.overrides, folders=line.folders)
    pages = []
    for name in line.stages:
        keys = describe(stage_class(name).Config, composed.experiment.stages[name], f"{name}.")
        head = (
            f"submit stage={name}: {_about_stage(name)}\nThe values are those of experiment={composed.experiment.name}."
        )
        pages.append("\n".join([head, "", *table(keys)]))
    return pages
