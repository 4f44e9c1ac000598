"""What all settings have in common, and the types of their values."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Size = Annotated[int, Field(ge=1, lt=10**9)]
"""A size; the limit is more than memory has room for, but not more than torch can count."""
Layers = Annotated[int, Field(ge=0, lt=10**9)]
"""A number of layers, which may be 0."""
Rate = Annotated[float, Field(ge=0, lt=1)]
"""A probability less than 1."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Folder = Annotated[str, Field(pattern=r"^[^\x00]*$")]


class Settings(BaseModel):
    """A table of settings, in which unknown names and values of a wrong type are errors.

    The docstring of an attribute is its description in the help of the command and in the documentation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
