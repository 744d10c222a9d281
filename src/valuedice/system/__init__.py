"""The system: files that are written whole or not at all, and the machine."""
