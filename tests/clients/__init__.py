"""Readers that others wrote, following whole jobs of a real gateway."""
