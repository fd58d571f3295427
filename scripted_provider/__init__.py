"""A model provider that follows a script: three wire formats, and whatever goes wrong in the world, on request.

For tests and demos; it is no model, and its answers say so. It imports nothing of Outlive, and nothing of Outlive
imports it: they meet over HTTP on loopback.
"""
