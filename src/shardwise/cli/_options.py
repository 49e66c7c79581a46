"""Options that several verbs share."""

from typing import Annotated

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative=(), help="Write JSON to stdout; keys carry their unit.")]
