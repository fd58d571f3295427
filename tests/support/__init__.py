"""Real parts for tests: servers, a strict reader, a proxy that breaks connections."""
