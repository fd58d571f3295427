"""`python -m tests.faults.debug_worker`: the worker with every logger of the process at DEBUG."""

import logging

from worker.__main__ import main

if __name__ == "__main__":
    logging.basicConfig(level=logging.DEBUG)
    logging.getLogger("tests").debug("every logger writes")
    main(prog_name="python -m worker")
