"""The report of an evaluation: tables, plots, thumbnails, and one HTML file that needs nothing beside it.

Nothing is imported here: analyses name their parts (:mod:`pipeline.report.parts`) long before a page is built.
"""
