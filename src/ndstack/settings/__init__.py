"""Every setting of a run, declared once: its type, its default, its checks and its description.

The arguments of `ndstack.nn.models.build`, the flags of `ndstack train`, the tables of `config.json` and the
documentation follow from these declarations. Nothing here imports torch or numpy, so `--help` is quick.
"""

from ndstack.settings.base import Settings
from ndstack.settings.data import CorpusConfig, DataConfig, PairsConfig, Plan, RecognitionConfig
from ndstack.settings.model import ModelOptions
from ndstack.settings.run import RunConfig
from ndstack.settings.training import Stage, TrainingConfig

__all__ = [
    "CorpusConfig",
    "DataConfig",
    "ModelOptions",
    "PairsConfig",
    "Plan",
    "RecognitionConfig",
    "RunConfig",
    "Settings",
    "Stage",
    "TrainingConfig",
]
