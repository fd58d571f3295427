"""What a job does: the contract of a kind (`kind.py`), the built-in kinds, and their registry."""
