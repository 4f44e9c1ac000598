"""The ledger: every empirical claim of the dissertation, decided by a rule from the tables of results."""

from ndstack.experiments.claims.ledger import Entry, decide
from ndstack.experiments.claims.page import write_page
from ndstack.experiments.claims.spec import Claim, read_claims

__all__ = ["Claim", "Entry", "decide", "read_claims", "write_page"]
