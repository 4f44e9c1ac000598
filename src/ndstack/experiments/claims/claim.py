"""Claims as data: in `claims.toml`, there is one table for each claim, with the parts that have to hold.

[[claims]]
id = "C10"
section = "6.2"
text = "With EOS, NS is worse than Strat. and Sup. on unmarked reversal."
theirs = "Figure 6.1, no numbers printed."
figure = "figure-6.1"

[[claims.parts]]
rule = "beats"                         # see ndstack.experiments.claims.rules
experiments = ["cfls"]                 # the runs have the settings of these
left = ["Strat.", "Sup."]              # labels of models in these experiments
right = ["NS"]
languages = ["unmarked-reversal"]      # each of them is decided separately
"""

from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, ValidationError

from ndstack.errors import NdstackError, first_problem
from ndstack.experiments.experiment import ClaimName, SpecTable
from ndstack.experiments.records import CLAIMS
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
    """A condition that has to hold on each of the languages for each of the models on the left."""

    rule: RuleName
    experiments: Name
    left: Name
    right: list[str] = Field(default_factory=list)
    languages: list[str] = Field(default_factory=list)
    """The languages; there are none on text."""
    metric: str = "difference"
    """A number of a run; see `ndstack.experiments.claims.evidence.metric_of`."""
    statistic: RunStatistic = "best"
    """The number of several runs: that of the best run by validation, or the lowest mean over a setting."""
    higher: bool = False
    """Whether a higher metric is better."""
    margin: float = 0.002
    share: float = 0.05
    """A side is better if it is better by more than `margin` and by more than this share of the worse side's
    number. It is faster if it is faster by more than this share, and near if it differs from the printed
    number by less than this share."""
    threshold: float = 0.0
    printed: dict[str, float] = Field(default_factory=dict)
    """The dissertation's numbers, by label."""
    runs: PositiveInt = 3
    """The number of runs that each side needs; with fewer, the part is undecided."""
    failures: PositiveInt = 10
    """The number of unsuccessful runs with which a model fails; `runs`, if all are far from success."""
    generally: bool = False
    """Whether it is sufficient that the part holds in more than half of all cases."""


class Claim(SpecTable):
    """One finding of the dissertation."""

    id: ClaimName
    section: str
    text: str
    theirs: str = ""
    """The numbers or the statement in the dissertation."""
    figure: str = ""
    parts: Annotated[list[ClaimPart], Field(min_length=1)]


class _File(SpecTable):
    claims: Annotated[list[Claim], Field(min_length=1)]


def read_claims(path: Path | None = None) -> list[Claim]:
    """Return the claims of a file, by default those of the dissertation."""
    if path is None:
        with resources.as_file(resources.files("ndstack.experiments.claims") / CLAIMS) as file:
            return read_claims(file)
    source = str(path)
    try:
        claims = _File.model_validate(read_toml(path)).claims
    except ValidationError as error:
        raise NdstackError(f"{source}: {first_problem(error)}") from None
    for claim in claims:
        if claim.figure:
            find(claim.figure)
        for part in claim.parts:
            _check(part, f"{source}, {claim.id}")
    return claims


def claims_for(folder: Path) -> list[Claim]:
    """Return the claims in `claims.toml` of a folder of tables; if it has none, the dissertation's."""
    own = folder / CLAIMS
    return read_claims(own if own.exists() else None)


def _check(part: ClaimPart, source: str) -> None:
    """Raise an error if the experiments of a part lack one of its labels or languages."""
    experiments = [find(name) for name in part.experiments]
    labels = {model.label for one in experiments for model in one.models}
    for label in {*part.left, *part.right, *part.printed} - labels:
        raise NdstackError(f"{source}: {label!r} is not a model of {', '.join(part.experiments)}")
    languages = {language for one in experiments for language in one.all_languages()}
    for language in {*part.languages} - languages:
        raise NdstackError(f"{source}: {language!r} is not a language of {', '.join(part.experiments)}")
    if not part.languages and not all(one.text for one in experiments):
        raise NdstackError(f"{source}: no languages given; expected one or more of {', '.join(languages)}")
