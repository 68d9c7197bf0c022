"""`python -m bapipe_cli` is `bapipe`."""

from bapipe_cli.main import main

if __name__ == "__main__":
    main()
