"""The service as users run it, for tests: real processes, on SQLite or on a PostgreSQL of the tests' own."""
