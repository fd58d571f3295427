"""PostgreSQL: everything that both processes must agree on, and the only importer of its driver."""
