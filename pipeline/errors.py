"""Errors that a user can mend: the text says what was wrong, where, and what to do."""

import errno

#: What the system says when this process or machine is short of something: of no file in particular.
OF_THE_MACHINE = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}
)


class UserError(ValueError):
    """Something the user gave is wrong: the message names the place and the remedy."""


class DamagedError(UserError):
    """A file is not what was written: cut off, changed, or of an older version."""


class LostError(UserError):
    """The other processes that share this piece of work cannot be reached any more."""


class LeftError(RuntimeError):
    """This process has failed while the others wait for it, and cannot tell them: it must end, which ends them."""
