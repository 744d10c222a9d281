"""How properties are checked: without a deadline, which a busy machine would miss."""

from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("thorough", deadline=None, max_examples=2000)
settings.load_profile("default")
