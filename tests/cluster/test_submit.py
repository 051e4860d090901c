from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from cluster.submit import main


@pytest.fixture
def here(house: Path) -> Path:
    return house.parent / "here"


def test_twice_the_same_the_second_has_nothing_to_do(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stage=gather"]) == 0
    first = capsys.readouterr()
    (folder,) = (here / "runs").iterdir()
    assert folder.name.startswith("gather-")
    assert "gather: 3 of 3 units to do in runs/gather-" in first.err
    assert f"gather: {folder.relative_to(here)}" in first.out
    assert first.out.endswith("\n  submit stage=gather\n")
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.done")}
    assert main(["stage=gather"]) == 0
    assert f"gather: nothing to do, all is done in {folder.relative_to(here)}" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*.done")} == before


def test_run_folder_holds_the_resolved_config_and_a_log(here: Path) -> None:
    assert main(["stage=gather", "units=2"]) == 0
    (folder,) = (here / "runs").iterdir()
    assert OmegaConf.load(folder / "config.yaml").gather.units == 2
    log = (folder / "log.txt").read_text()
    assert "gather: submit stage=gather units=2" in log
    assert "gather: 2 of 2 units to do" in log
    assert "gather: 100% 2/2" in log


def test_another_config_in_the_same_folder_is_refused_with_the_difference(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stage=gather", "output=mine"]) == 0
    recorded = (here / "mine" / "config.yaml").read_bytes()
    assert main(["stage=gather", "output=mine", "seed=5"]) == 1
    assert "config.seed: 0 → 5" in capsys.readouterr().err
    assert (here / "mine" / "config.yaml").read_bytes() == recorded


def test_a_failing_unit_stops_no_other_unit_but_the_next_stage(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stage=[gather,train]", "gather.failing=['1']"]) == 1
    error = capsys.readouterr().err
    (folder,) = (here / "runs").iterdir()
    assert sorted(path.name for path in folder.glob("*.done")) == ["0.done", "2.done"]
    assert "failed: gather, unit 1 (toy/1): toy/1: the tar is torn at byte 7. Pack it again." in error
    assert "Traceback" not in error
    assert "failed: gather, unit 1" in (folder / "log.txt").read_text()
    assert main(["stage=[gather,train]"]) == 0
    assert "gather: 1 of 3 units to do" in capsys.readouterr().err


def test_ctrl_c_leaves_what_the_same_command_goes_on_with(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        _ctrl_c(capsys)
    finally:
        signal.signal(signal.SIGINT, before)


def _ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stage=gather", "interrupt='1'"]) == 130
    assert "this goes on:\n  submit stage=gather" in capsys.readouterr().err
    assert main(["stage=gather"]) == 0
    assert "gather: 2 of 3 units to do" in capsys.readouterr().err


def test_sigterm_stops_between_units_with_the_exit_code_that_shells_know(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["stage=[gather,train]", "gather.terminate='1'"]) == 143
    assert "this goes on:\n  submit 'stage=[gather,train]'" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before
    (folder,) = (here / "runs").iterdir()
    assert sorted(path.name for path in folder.glob("*.done")) == ["0.done", "1.done"], "a unit that is done is kept"
    assert "stopped" in (folder / "log.txt").read_text()
    assert main(["stage=[gather,train]"]) == 0
    assert "gather: 1 of 3 units to do" in capsys.readouterr().err


def test_a_head_is_not_compared_with_itself(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stage=[gather,train,evaluate]", "head=loss_prediction_l2"]) == 0
    assert "train head=loss_prediction_l2" not in capsys.readouterr().err


def test_a_bug_keeps_its_traceback_and_writes_it_to_the_log(here: Path) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        main(["stage=gather", "broken=['0']"])
    (folder,) = (here / "runs").iterdir()
    assert "RuntimeError: a bug" in (folder / "log.txt").read_text()


def test_all_runs_what_the_release_needs_in_order_and_every_compared_head(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["stage=all"]) == 0
    said = [line.split(":")[0] for line in capsys.readouterr().err.splitlines() if "units to do" in line]
    assert said == [
        "gather",
        "train",
        "train head=inverse_norm",
        "train head=loss_prediction_l2",
        "evaluate",
        "release",
    ]
    assert len(list((here / "runs").iterdir())) == 6


def test_order_of_the_chain_is_found_however_it_is_written(house: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stage=[train,probe,gather]", "evaluate.compare=[]"]) == 0
    said = [line.split(":")[0] for line in capsys.readouterr().err.splitlines() if "units to do" in line]
    assert said[0] == "gather"
    assert sorted(said[1:]) == ["probe", "train"]


def test_plan_runs_nothing(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "stage=[gather,train]"]) == 0
    gather, train, free = capsys.readouterr().out.splitlines()
    assert "3 units to do, 0 done, 30 samples, reads 4.5 kB: toy/0, toy/1, toy/2 → runs/gather-" in gather
    assert train.split() == ["train", "waits", "for", "gather"]
    assert free.startswith("free disk")
    assert not list(here.iterdir())


def test_status_counts_what_is_on_disk(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["stage=gather", "failing=['2']"])
    capsys.readouterr()
    assert main(["status", "stage=[gather,train]", "--json"]) == 0
    gather, train = json.loads(capsys.readouterr().out)["stages"]
    assert (gather["stage"], gather["done"], gather["total"], gather["samples"]) == ("gather", 2, 3, 20)
    assert (train["done"], train["total"]) == (0, None)
    assert main(["status"]) == 0
    heading, row = capsys.readouterr().out.splitlines()[:2]
    assert heading.split() == ["stage", "units", "samples", "failed", "folder"]
    assert row.split()[:6] == ["gather", "2", "of", "3", "20", "1"]


def test_verify_names_what_is_broken_and_what_repairs_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["stage=gather", "name=mine"])
    capsys.readouterr()
    assert main(["verify", "stage=[gather,train]", "name=mine"]) == 0
    assert "train: nothing to verify yet" in capsys.readouterr().out
    (folder,) = (here / "runs").iterdir()
    (folder / "1.done").write_text("x")
    assert main(["verify", "stage=[gather,train]", "name=mine"]) == 1
    out = capsys.readouterr().out
    assert "gather: unit 1: not empty" in out
    assert "  submit stage=gather name=mine" in out


def test_quarantine_lists_what_is_set_aside_and_counts_the_reasons(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quarantine", "stage=gather"]) == 0
    assert capsys.readouterr().out == "nothing is set aside\n"
    main(["stage=gather"])
    capsys.readouterr()
    (folder,) = (here / "runs").iterdir()
    assert main(["quarantine", "stage=gather"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"gather: 3 samples of 2 units set aside, {folder.relative_to(here)}",
        "        3 × cls says …, not …",
        "1\ttoy/1\tk0\tcls says 0, not 'x0'",
        "2\ttoy/2\tk0\tcls says 0, not 'x0'",
        "2\ttoy/2\tk1\tcls says 1, not 'x1'",
    ]
    assert main(["quarantine", "stage=gather", "--unit=1", "--json"]) == 0
    (stage,) = json.loads(capsys.readouterr().out)["stages"]
    assert stage["reasons"] == {"cls says …, not …": 1}
    assert stage["samples"] == [{"unit": "1", "tar": "toy/1", "key": "k0", "reason": "cls says 0, not 'x0'"}]
    assert main(["quarantine", "stage=gather", "--unit", "7"]) == 0
    assert capsys.readouterr().out == "nothing is set aside in unit 7\n"
    assert main(["quarantine", "stage=gather", "--unit"]) == 2


def test_a_verb_has_keys_of_its_own(house: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--help"]) == 0
    page = capsys.readouterr().out
    assert "  recompute = 0\n      int ≥ 0\n      Random rows that are made again" in page
    assert main(["verify", "recompute=-1"]) == 2
    assert "recompute: Input should be greater than or equal to 0 (got -1)" in capsys.readouterr().err
    assert main(["stage=gather", "recompute=1"]) == 2
    assert main(["stage=gather"]) == 0
    assert main(["verify", "stage=gather", "recompute=1"]) == 2
    assert "none of the chosen stages has rows" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["stage=nope"], ["name=x"], ["stage=gather", "units=0"]])
def test_usage_errors_give_2(house: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2


def test_help_of_a_stage_shows_types_values_and_what_they_are(house: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stage=train", "units=5", "--help"]) == 0
    page = capsys.readouterr().out
    assert "  train.units = 5\n      int ≥ 1 ≤ 9\n      how many there are.\n" in page
    assert "  train.seeds = [0]\n      list of int\n" in page
    assert "  train.interrupt = null\n      str | null\n      The unit at which somebody presses Ctrl-C.\n" in page
    assert "  train.output = null\n      Path | null\n      run folder\n" in page


def test_help_lists_verbs_stages_and_groups(house: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == 0
    page = capsys.readouterr().out
    for word in ("plan", "status", "verify", "gather", "loss_prediction_l2", "other", "130"):
        assert word in page
    assert "  gather       toys" in page


def test_from_the_shell_help_is_quick_and_exit_codes_arrive() -> None:
    script = (
        "import sys; from cluster.submit import main; code = main(['--help']); sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    wrong = subprocess.run(
        [sys.executable, "-m", "cluster.submit", "stage=cahce"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("submit: unknown stage 'cahce'. Did you mean 'cache'? Valid: ")


def test_a_reader_who_has_read_enough_sees_no_traceback() -> None:
    command = [sys.executable, "-c", "from cluster.submit import main; raise SystemExit(main(['--help']))"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, error = process.communicate()
    assert error == b""
    assert process.returncode == 1


def test_what_the_system_refuses_is_one_line_and_the_command_that_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(number: int) -> Any:
        def run(request: Any) -> int:
            raise OSError(number, os.strerror(number), "/a/disk/file")

        return lambda name: run

    monkeypatch.setattr("cluster.submit.verb", refuse(errno.ENOSPC))
    assert main(["stage=pack", "experiment=demo_digits"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert "No space left on device: /a/disk/file" in said[0]
    assert said[1:] == ["  submit stage=pack experiment=demo_digits"]
    main(["leaderboard", "runs=[a]", "into=b"])
    assert capsys.readouterr().err.splitlines()[1:] == ["  submit leaderboard 'runs=[a]' into=b"]
    monkeypatch.setattr("cluster.submit.verb", refuse(errno.ENOENT))
    with pytest.raises(FileNotFoundError):  # a fault of the program
        main(["stage=pack", "experiment=demo_digits"])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("can't start new thread"), "can't start new thread: too many processes or threads"),
        (MemoryError(), "out of memory"),
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "Resource temporarily unavailable"),  # of fork
        (OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN), "/mnt/x"), "not connected: /mnt/x"),  # of FUSE
    ],
)
def test_too_few_threads_or_too_little_memory_are_no_fault_of_the_program(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(request: Any) -> int:
        raise error

    monkeypatch.setattr("cluster.submit.verb", lambda name: run)
    assert main(["stage=pack", "experiment=demo_digits"]) == 1
    line, again = capsys.readouterr().err.splitlines()
    assert said in line
    assert again == "  submit stage=pack experiment=demo_digits"


def test_with_closed_outputs_the_work_is_done_and_the_exit_code_says_so(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)  # as Python has it after `>&-`
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["stage=gather"]) == 0
    assert main(["stage=gather", "failing=['1']", "seed=1"]) == 1
    assert len(list((here / "runs").glob("*/*.done"))) == 5


def test_what_somebody_else_has_done_can_be_read_where_nothing_can_be_written(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    assert main(["stage=gather"]) == 0
    monkeypatch.setattr("cluster.executors.base.write_bytes", refuse)
    monkeypatch.setattr("cluster.progress.append_text", refuse)
    assert main(["stage=gather"]) == 0
    assert "nothing to do" in capsys.readouterr().err
