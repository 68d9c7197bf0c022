"""`python -m bapipe_api`: the service, configured by the environment (`BAPIPE_*`)."""

from bapipe_api.server import main

if __name__ == "__main__":
    raise SystemExit(main())
