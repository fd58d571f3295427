"""`python -m tests.acceptance.debug_gateway`: the gateway with every logger of the process at DEBUG."""

import logging

from gateway.__main__ import main

if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    logging.getLogger("tests").debug("every logger writes")
    main(prog_name="python -m gateway")
