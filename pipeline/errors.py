"""Errors that a user can mend: the text says what was wrong, where, and what to do."""


class UserError(ValueError):
    """Something the user gave is wrong: the message names the place and the remedy."""


class LostError(UserError):
    """The other processes that share this piece of work cannot be reached any more."""


class LeftError(RuntimeError):
    """This process has failed while the others wait for it, and cannot tell them: it must end, which ends them."""
