"""The dissertation's experiments as data, sweeps over their trials, engines that run them, and reports."""

from ndstack.experiments.engines import Engine, Inline, Local, Lost
from ndstack.experiments.experiment import Experiment, Rules
from ndstack.experiments.gathering import gather
from ndstack.experiments.jobs import Job, JobOutcome
from ndstack.experiments.records import Epoch, Record, Tables
from ndstack.experiments.registry import all_experiments, find, read_experiments
from ndstack.experiments.report import Report, make_report
from ndstack.experiments.sweep import Portion, Summary, Watcher, measures_of, run_campaign, run_sweep
from ndstack.experiments.sweep_folder import SweepFolder
from ndstack.experiments.trials import Trial, choose, expand

__all__ = [
    "Engine",
    "Epoch",
    "Experiment",
    "Inline",
    "Job",
    "JobOutcome",
    "Local",
    "Lost",
    "Portion",
    "Record",
    "Report",
    "Rules",
    "Summary",
    "SweepFolder",
    "Tables",
    "Trial",
    "Watcher",
    "all_experiments",
    "choose",
    "expand",
    "find",
    "gather",
    "make_report",
    "measures_of",
    "read_experiments",
    "run_campaign",
    "run_sweep",
]
