"""Who does the work of a call: one contract (`provider.py`) and one file per wire format."""
