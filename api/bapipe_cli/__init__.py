"""The `bapipe` command: the top layer, which may use the solver, the client and the service."""
