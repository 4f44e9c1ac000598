import io

from rich.console import Console

from ndstack.languages import Plan, get, make_dataset
from ndstack.nn import models
from ndstack.training import TrainingConfig, fit
from ndstack.training.checkpoint import Progress
from ndstack.training.schedule import Schedule
from ndstack.training.terminal import Terminal


def test_everything_is_legible_in_eighty_columns():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    terminal = Terminal("tf+vrns-3-3-5 on unmarked-copy-different-alphabets", console=console)
    shown = []

    class Watch(Terminal):
        def validated(self, progress):
            super().validated(progress)
            with console.capture() as captured:
                console.print(self.live.get_renderable())
            shown.append(captured.get())

    terminal.__class__ = Watch
    data = make_dataset(get("dyck"), 1, Plan(train=20, validation=10, lengths=(4, 8), test_per_length=0))
    fit(models.build("lstm", data.language), data, TrainingConfig(max_epochs=2), observer=terminal)
    last = " ".join(shown[-1].split())
    assert "…" not in last
    assert "2/2" in last
    assert "best" in last
    assert "learning rate 0.005" in last
    assert "left" in last


def test_a_resumed_run_that_is_allowed_fewer_epochs_than_it_has_shows_no_more_than_all():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    terminal = Terminal("lstm on dyck", console=console)
    terminal.start(TrainingConfig(max_epochs=2), Progress(epoch=3, schedule=Schedule(learning_rate=0.1)))
    terminal.close()
    with console.capture() as captured:
        console.print(terminal.live.get_renderable())
    assert "3/3" in captured.get()
