"""Running jobs: claim, run, append, end; and the only importer of the HTTP client for providers."""
