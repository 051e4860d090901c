"""Errors that a user can mend. Their text says what was wrong, where, and what to do; no traceback is shown for them."""


class UserError(ValueError):
    """Something the user gave is wrong: the message names the place and the remedy."""
