"""Proofs on the whole system, with real processes that are killed, stalled and cut off."""
