"""One module for each family of addresses: parse, call `schema`, shape the answer."""
