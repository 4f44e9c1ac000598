"""`python -m benchmarks`: every benchmark, one table each; the same as `ndstack bench`."""

import sys

from ndstack.cli import main

if __name__ == "__main__":
    sys.argv = ["ndstack", "bench"]
    main()
