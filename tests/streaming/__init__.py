"""Tests of tails, tailer and streams, in process, on a real database, without HTTP."""
