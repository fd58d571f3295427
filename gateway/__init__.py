"""HTTP and SSE: the only importer of an HTTP server; speaks to callers and, through `schema`, to the tables."""
