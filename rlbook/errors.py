"""The two ways a run goes wrong, told apart because the command line answers them differently."""


class RequestError(ValueError):
    """The request was wrong: one sentence saying what, which value, and what is allowed. Nothing
    was written. Exit code 2."""


class TrainingError(RuntimeError):
    """Training failed: one sentence saying why. The last good checkpoint stays. Exit code 1."""
