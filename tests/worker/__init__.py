"""Tests of the worker core, in process, on a real database."""
