"""Tests of the database core: each says which invariant of the design it holds."""
