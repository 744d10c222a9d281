"""How properties are checked (without a deadline, which a busy machine would miss), and where code is cached."""

import os
from pathlib import Path

from hypothesis import settings

# Commands that tests start share what they compile, and leave the user's own cache alone.
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parent.parent / ".pytest_cache" / "xdg")

settings.register_profile("default", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("default")
