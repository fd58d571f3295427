"""The benchmarks: `make bench`. Nothing here asserts a time; docs/performance.md keeps what was measured."""
