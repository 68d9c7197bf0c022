"""`python -m bapipe_api`: the service, configured by the environment (`BAPIPE_*`)."""

if __name__ == "__main__":  # every search's process imports this file under another name
    from bapipe_api.server import main

    raise SystemExit(main())
