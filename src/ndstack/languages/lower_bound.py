"""The lower bound of the cross-entropy: that of the true distribution itself (sections 5.6 and 6.2.1).

    H(S, p) = Σ_{w ∈ S} -log p(w) / Σ_{w ∈ S} (|w| + 1)

The + 1 counts EOS; it is left out if EOS is not predicted. No model has a smaller cross-entropy on average.
"""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ndstack.errors import LanguageError
from ndstack.grammars.grammar import Word

if TYPE_CHECKING:
    from ndstack.languages.language import Language
    from ndstack.settings.data import Lengths


def cross_entropy_bound(
    language: "Language", words: Iterable[Word], lengths: "Lengths | None", eos: bool
) -> float:
    """Return the cross-entropy of the true distribution on some strings, in nats per symbol.

    Args:
        language: the language.
        words: strings of the language.
        lengths: the range from which lengths are drawn uniformly; None if the length is known.
        eos: whether EOS is predicted, too.
    """
    count = 1 if lengths is None else len(language.lengths(*lengths))
    total, symbols = 0.0, 0
    for word in words:
        log_p = language.log_probability(word)
        if log_p == -math.inf:
            raise LanguageError(f"{word!r} is not in the language {language.name}, so it has no lower bound")
        if lengths is not None and not lengths[0] <= len(word) <= lengths[1]:
            raise LanguageError(
                f"a string of length {len(word)} cannot come from lengths {lengths[0]}..{lengths[1]}"
            )
        total += math.log(count) - log_p
        symbols += len(word) + eos
    if symbols == 0:
        raise LanguageError("the lower bound of no symbols is undefined; give at least one string")
    return total / symbols
