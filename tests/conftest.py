"""For all tests."""

from hypothesis import settings

# Busy machines are slow at times: how long an example takes says nothing about what is tested.
settings.register_profile("hedgerow", deadline=None)
settings.load_profile("hedgerow")
