"""Commands of the command line, run in this process."""

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ndstack.cli import main


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str


def ndstack(*arguments, cwd=None):
    """Run the command in this process, as a shell would from `cwd`."""
    out, err = io.StringIO(), io.StringIO()
    before, argv = Path.cwd(), sys.argv
    sys.argv = ["ndstack", *map(str, arguments)]
    os.chdir(cwd or before)
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            main()
    finally:
        sys.argv = argv
        os.chdir(before)
    return Result(end.value.code, out.getvalue(), err.getvalue())


def ok(*arguments, cwd=None):
    result = ndstack(*arguments, cwd=cwd)
    assert result.returncode == 0, result.stderr
    return result.stdout
