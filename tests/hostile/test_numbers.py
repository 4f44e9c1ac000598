"""Numbers, names and settings that are out of range."""

import pytest

from tests.hostile.bad import refused

SMALL = ("--model", "lstm", "--out", "made", "--lengths", "4:6", "--train", "10", "--max-epochs", "1")
NUMBERS = [
    (("sample", "dyck"), "--count", "-1 nan 1.5 x 9e9"),
    (("sample", "dyck"), "--seed", "-1 nan x"),
    (("sample", "dyck"), "--lengths", "-1 : 5:4 1:2:3 ² nan 99999999999999999999 " + "1" * 5000),
    (("dataset", "dyck", "--out", "made"), "--batch-size", "0 -1 nan"),
    (("train", "dyck", *SMALL), "--learning-rate", "0 -1 nan inf -inf x"),
    (("train", "dyck", *SMALL), "--processes", "0 -1 x"),
    (("train", "dyck", "--model", "lstm", "--out", "made"), "--stages", "x 4:6, ,4:6 9:4,4:6 4:6@0,4:6 4:6@x "
     f"4:6@1/2/3/4 4:6@1/0 4:6@1//nan 4:6@1//0,4:6 4:6@{'9' * 5000} 4:{'9' * 5000},4:6 5:5,4:6"),
    (("train", "dyck", *SMALL), "--stages", "4:6 4:6,4:8"),
    (("train", "dyck", *SMALL), "--threads", "0 -1 x"),
    (("train", "dyck", *SMALL), "--max-epochs", "0 -1 1e9"),
    (("train", "dyck", *SMALL), "--seed", "-1 x 1e3"),
    (("train", "dyck", *SMALL), "--train", "-1 0 x"),
    (("train", "dyck", *SMALL), "--model", "rns rns-0-3 rns--1-3 sup-0 tf+ lstm-5 é rns-2-" + "9" * 5000),
    (("train", "dyck", *SMALL), "--set", "training.clip=nan training.decay=nan training=3 a=b = ...=1 "
     "options.hidden=0 data.lengths=[9,4] data.lengths=[5] training.checkpoint_seconds=nan model=3 "
     f"options.hidden={'9' * 12} options.hidden={'9' * 30} training.threads={'9' * 30} "
     f"data.lengths=[4,{'9' * 12}] data.test_lengths=[4,{'9' * 12}] seed={'1' * 5000} seed={'[' * 5000}"),
    (("train", "dyck", *SMALL, "--model", "sup-2"), "--set", f"options.depth={'9' * 20}"),
    (("train", "dyck", *SMALL, "--model", "rns-1-2"), "--set", f"options.window={'9' * 20}"),
    (("sample",), "", "dyck(k=0) dyck(k=-1) dyck(k=1e9) dyck( DYCK count-3(k=2) ../x"),
    (("sample",), "", f"dyck(k={'9' * 5000})"),
    (("text", "example", "--out", "made"), "--sentences", "-1 0 x"),
    (("reproduce", "cfls", "--out", "made"), "--scale", "x"),
    (("reproduce", "cfls", "--out", "made"), "--workers", "-1 x"),
    (("reproduce", "cfls", "--out", "made"), "--nice", "-1 20 x"),
    (("reproduce", "cfls", "--out", "made", "--workers", "0"), "--nice", "5"),
    (("explore",), "--port", "-1 99999 x"),
    (("bench",), "", "x"),
    (("compile",), "", "x rns rns-0-3"),
    (("train", "dyck", *SMALL), "--recipe", "x publik"),
]  # fmt: skip


@pytest.mark.parametrize("command, option, values", NUMBERS)
def test_numbers_and_names_out_of_range(command, option, values, tmp_path):
    for value in values.split():
        refused(*command, f"{option}={value}" if option else value, cwd=tmp_path)
