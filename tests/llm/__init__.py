"""A real model on this machine: real tokens, real usage, a real cancel."""
