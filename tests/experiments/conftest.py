import pytest

from ndstack.experiments import Experiment


@pytest.fixture
def small():
    """Four trials of a moment each; no compiled kernels."""
    return Experiment.of(
        {
            "name": "small",
            "languages": ["marked-reversal"],
            "models": [{"label": "LSTM", "names": ["lstm"]}],
            "restarts": 2,
            "search": {"training.learning_rate": [0.01, 0.005]},
            "settings": {
                "data": {
                    "train": 20,
                    "validation": 10,
                    "test_per_length": 1,
                    "lengths": [6, 10],
                    "test_lengths": [6, 12],
                },
                "training": {"max_epochs": 2, "device": "cpu"},
            },
            "outputs": [{"label": "curve", "kind": "curves", "select": "setting"}],
        },
        "small",
    )
