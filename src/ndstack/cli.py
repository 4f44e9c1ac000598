"""The `ndstack` command."""


def main() -> None:
    """Run the command line."""
