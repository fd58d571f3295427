"""The wire formats: what the parts of an answer look like."""
