"""Claims as data: `claims.toml`, one table for each claim, with the parts that have to hold.

[[claims]]
id = "C10"
section = "6.2"
text = "With EOS, NS is worse than Strat. and Sup. on unmarked reversal."
theirs = "Figure 6.1, no numbers printed."
figure = "figure-6.1"

[[claims.parts]]
rule = "beats"                         # see ndstack.experiments.claims.rules
experiments = ["cfls"]                 # whose settings the runs have
left = ["Strat.", "Sup."]              # labels of models, in these experiments
right = ["NS"]
languages = ["unmarked-reversal"]      # each of them is decided on its own
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, ValidationError

from ndstack.errors import NdstackError, first_problem
from ndstack.experiments.experiment import SpecTable, Values
from ndstack.experiments.registry import find
from ndstack.settings.reading import read_toml

RunStatistic = Literal["best", "mean"]
RuleName = Literal[
    "solves",
    "fails",
    "beats",
    "not_beats",
    "alike",
    "share",
    "faster",
    "above",
    "below",
    "near",
    "ratio",
    "correlation",
    "trend",
    "most_beat",
    "no_winner",
]
Name = Annotated[list[str], Field(min_length=1)]


class ClaimPart(SpecTable):
    """What has to hold, on each of the languages, for each of the models on the left."""

    rule: RuleName
    experiments: Name
    left: Name
    right: list[str] = Field(default_factory=list)
    languages: list[str] = Field(default_factory=list)
    """On text there are none."""
    metric: str = "difference"
    """Of a run: see `ndstack.experiments.claims.evidence.metric_of`."""
    statistic: RunStatistic = "best"
    """Of several runs: of the best by validation; or the mean, of the setting whose mean is lowest."""
    higher: bool = False
    """Whether more of the metric is better."""
    margin: float = 0.002
    share: float = 0.05
    """Better is better by more than `margin`, and by more than this share of the worse side's number; faster
    is faster by more than this share, near is nearer than this share of the printed number."""
    threshold: float = 0.0
    printed: dict[str, float] = Field(default_factory=dict)
    """The dissertation's numbers, by label."""
    runs: PositiveInt = 3
    """So many on each side, or the part is undecided."""
    failures: PositiveInt = 10
    """So many runs that ended without success say that a model fails; `runs`, if all are far from success."""
    generally: bool = False
    """Whether it is enough that the part holds in more than half of all cases."""


class Claim(SpecTable):
    """One finding of the dissertation."""

    id: Annotated[str, Field(pattern=r"^C[0-9]+$")]
    section: str
    text: str
    theirs: str = ""
    """What the dissertation prints."""
    figure: str = ""
    parts: Annotated[list[ClaimPart], Field(min_length=1)]


class _File(SpecTable):
    claims: Annotated[list[Claim], Field(min_length=1)]


def read_claims(path: Path | None = None) -> list[Claim]:
    """The claims of a file, or those of the dissertation."""
    values: Values
    if path is None:
        place = resources.files("ndstack.experiments.claims") / "claims.toml"
        with resources.as_file(place) as file:
            values, source = read_toml(file), place.name
    else:
        values, source = read_toml(path), str(path)
    try:
        claims = _File.model_validate(values).claims
    except ValidationError as error:
        raise NdstackError(f"{source}: {first_problem(error)}") from None
    for claim in claims:
        if claim.figure:
            find(claim.figure)
        for part in claim.parts:
            _check(part, f"{source}, {claim.id}")
    return claims


def _check(part: ClaimPart, source: str) -> None:
    """Labels and languages that no experiment has are noticed before anything is decided."""
    experiments = [find(name) for name in part.experiments]
    labels = {model.label for one in experiments for model in one.models}
    for label in {*part.left, *part.right, *part.printed} - labels:
        raise NdstackError(f"{source}: {label!r} is not a model of {', '.join(part.experiments)}")
    languages = {language for one in experiments for language in one.all_languages()}
    for language in {*part.languages} - languages:
        raise NdstackError(f"{source}: {language!r} is not a language of {', '.join(part.experiments)}")
    if not part.languages and not all(one.text for one in experiments):
        raise NdstackError(f"{source}: expected languages")
