"""Errors that a user can mend: the text says what was wrong, where, and what to do."""


class UserError(ValueError):
    """Something the user gave is wrong: the message names the place and the remedy."""
