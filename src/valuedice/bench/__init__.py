"""How fast an update is, next to what the machine can do."""
