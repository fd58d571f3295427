"""The tests of Outlive; `support` is what they stand on."""
