"""`python -m ndstack` is the `ndstack` command."""

from ndstack.cli import main

if __name__ == "__main__":
    main()
