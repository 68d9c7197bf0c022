"""The routes of the service, one router a file."""
