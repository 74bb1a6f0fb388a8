"""`python -m omnigraph` is the command line, for where the program is not on the path."""

from omnigraph.cli.main import main

if __name__ == "__main__":
    main()
