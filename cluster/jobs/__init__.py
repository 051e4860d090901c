"""What is known on disk of work that many processes share: submissions, journals, claims. None of it is the truth.

The truth is the commit records of a stage. What lies here says who is at work, who was, and why something failed; it is
kept in ``<run folder>/jobs``, a folder that all machines share.
"""
