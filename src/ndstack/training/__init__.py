"""Training: the loop, its schedule, run folders that can be resumed exactly, evaluation."""

from ndstack.settings.data import CorpusConfig, DataConfig, PairsConfig, RecognitionConfig
from ndstack.settings.model import ModelOptions
from ndstack.settings.run import RunConfig
from ndstack.settings.training import TrainingConfig
from ndstack.training.evaluation import Evaluation, Row, evaluate, evaluate_task
from ndstack.training.launch import train
from ndstack.training.loop import Result, fit
from ndstack.training.material import make_data, make_model, make_test_data, measure
from ndstack.training.measured import Measured
from ndstack.training.observers import Observer
from ndstack.training.recognition import Recognition, RecognitionTask, accepts, evaluate_recognition
from ndstack.training.run import Run, change_settings
from ndstack.training.task import FormalTask, Loss, Nats, Share, Task
from ndstack.training.transduction import TransductionTask, Translated, evaluate_transduction

__all__ = [
    "CorpusConfig",
    "DataConfig",
    "Evaluation",
    "FormalTask",
    "Loss",
    "Measured",
    "ModelOptions",
    "Nats",
    "Observer",
    "PairsConfig",
    "Recognition",
    "RecognitionConfig",
    "RecognitionTask",
    "Result",
    "Row",
    "Run",
    "RunConfig",
    "Share",
    "Task",
    "TrainingConfig",
    "TransductionTask",
    "Translated",
    "accepts",
    "change_settings",
    "evaluate",
    "evaluate_recognition",
    "evaluate_task",
    "evaluate_transduction",
    "fit",
    "make_data",
    "make_model",
    "make_test_data",
    "measure",
    "train",
]
