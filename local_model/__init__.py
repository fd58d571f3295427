"""A real model on this machine, to try Outlive with: optional, and never a dependency."""
