"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# How long one example takes tells more of the machine's load than of the code.
settings.register_profile("recordmill", deadline=None)
settings.load_profile("recordmill")
