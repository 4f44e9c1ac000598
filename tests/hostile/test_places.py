"""Every command, with something else in the place of every file and folder that it takes."""

import inspect
import shutil

import pytest

from tests.hostile.bad import (
    ANY_FOLDER,
    FILES,
    FOLDER_PLACES,
    FOLDERS,
    PICTURE_PLACES,
    PICTURES,
    PLACES,
    READ_TEXT,
    READERS,
    TEXT,
    outcome,
    refused,
    words,
)
from tests.test_command_line import COMMANDS


def test_no_command_that_takes_a_file_or_folder_is_left_out():
    takers = set()
    for path, command in COMMANDS.items():
        for name, parameter in inspect.signature(command.callback).parameters.items():
            option = next(one for one in command.params if one.name == name)
            if "Path" in str(parameter.annotation) or option.metavar == "RUN":
                takers.add(f"{path.removeprefix('ndstack ')} {name}")
    assert takers == READERS.keys() | FOLDERS.keys() | PICTURES.keys()


@pytest.mark.parametrize("reader", READERS)
def test_something_else_to_read(reader, odd, good):
    for name in (*FILES, *PLACES):
        line = words(READERS[reader], name, good)
        if reader in READ_TEXT and name in TEXT:
            code, _ = outcome(*line, cwd=odd)
            assert code in (0, 2)
            shutil.rmtree(odd / "made", ignore_errors=True)
        else:
            refused(*line, cwd=odd)


@pytest.mark.parametrize("writer", FOLDERS)
def test_somewhere_else_to_put_a_folder(writer, odd, good):
    for place in FOLDER_PLACES:
        if not (place == "full" and writer in ANY_FOLDER):
            refused(*words(FOLDERS[writer], place, good), cwd=odd)
    assert [path.name for path in (odd / "full").iterdir()] == ["kept"]


@pytest.mark.parametrize("writer", PICTURES)
def test_somewhere_else_to_put_a_picture(writer, odd, good):
    for place in PICTURE_PLACES:
        refused(*words(PICTURES[writer], place, good), cwd=odd)
    assert not list((odd / "folder.svg").iterdir())
