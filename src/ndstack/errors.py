"""The errors a user can cause. Their text is one line: what was given, what was expected, what to do."""


class NdstackError(ValueError):
    """Wrong input; the command line prints its text and exits with code 2."""


class GrammarError(NdstackError):
    """A grammar, or a rule of one, that cannot be used."""


class AutomatonError(NdstackError):
    """An automaton, or a transition of one, that does not have the required form."""


class LanguageError(NdstackError):
    """An unknown language, a string outside it, or a length at which it has no strings."""


class DatasetError(NdstackError):
    """A data set folder that is missing, damaged or not what its header says."""


class DivergenceError(NdstackError):
    """A sum over infinitely many derivations or runs that has no finite value."""


class TrainingError(NdstackError):
    """A run that cannot start, go on or be read."""
