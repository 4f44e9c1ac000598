"""What killed writers leave behind is removed by who holds the folder, and nothing else is."""

import shutil
import subprocess
import sys
from pathlib import Path

from ndstack import files

KILLED = """
import os, signal, sys
from pathlib import Path
from ndstack import files
{}
"""
WRITER = """
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
files.replace(Path(sys.argv[1]) / "model.json", b"{}")
"""
MAKER = """
with files.new_folder(Path(sys.argv[1]) / "data", "the data set") as draft:
    (draft / "train.txt").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def kill(code, folder):
    done = subprocess.run([sys.executable, "-c", KILLED.format(code), str(folder)])
    assert done.returncode == -9


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_writer_left_is_removed_and_nothing_else(tmp_path):
    kill(WRITER, tmp_path)
    (leftover,) = names(tmp_path)
    assert leftover.startswith(".model.json.")
    kept = [".config.json.original", ".gitignore", ".model.json.tmp", "model.json", "notes.tmp", ".lock"]
    for name in kept:
        (tmp_path / name).touch(mode=0o644)
    (tmp_path / ".model.json.abcdefgh.tmp").symlink_to("model.json")
    files.tidy(tmp_path, tmp_path / "nowhere")
    assert names(tmp_path) == sorted([*kept, ".model.json.abcdefgh.tmp"])


def test_a_writer_whose_file_was_tidied_away_writes_it_again(tmp_path, monkeypatch):
    real, calls = Path.chmod, []

    def tidy(path, mode):
        real(path, mode)
        calls.append(path)
        if len(calls) == 1:
            files.tidy(tmp_path)

    monkeypatch.setattr(Path, "chmod", tidy)
    files.replace(tmp_path / "a.json", b"1")
    assert names(tmp_path) == ["a.json"]
    assert len(calls) == 2


def test_a_draft_of_a_killed_process_is_removed_when_the_folder_is_made_again(tmp_path):
    kill(MAKER, tmp_path)
    assert len(names(tmp_path)) == 1
    (tmp_path / ".data-20261116").mkdir()  # a copy that somebody keeps
    with files.new_folder(tmp_path / "data", "the data set") as mine:
        assert len(names(tmp_path)) == 2
        (mine / "train.txt").write_text("half")
        with files.new_folder(tmp_path / "data", "the data set") as other:
            assert mine.exists()  # who comes second leaves the draft of the first alone
            (other / "train.txt").write_text("other")
        shutil.rmtree(tmp_path / "data")
        (mine / "train.txt").write_text("whole")
    assert names(tmp_path) == [".data-20261116", "data"]
    assert (tmp_path / "data" / "train.txt").read_text() == "whole"
