"""The ledger: every empirical claim of the dissertation, decided by a rule from the tables of results."""

from ndstack.experiments.claims.claim import Claim, claims_for, read_claims
from ndstack.experiments.claims.claims_page import write_page
from ndstack.experiments.claims.ledger import Entry, decide

__all__ = ["Claim", "Entry", "claims_for", "decide", "read_claims", "write_page"]
