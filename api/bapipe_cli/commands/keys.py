"""`bapipe keys`: who may use the service."""

from __future__ import annotations

from typing import Annotated

import typer

from bapipe_cli.guard import user_faults
from bapipe_cli.output import console, table
from bapipe_cli.service_settings import DatabaseOption, migrated_database, service_settings

MAX_NAME = 100

NameOption = Annotated[
    str,
    typer.Option("--name", help="Whose key it is. Keys of one name see the same plans.", show_default=False),
]
ScopesOption = Annotated[str, typer.Option("--scopes", help="What it allows, of read, write and metrics.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="As `bapipe keys list` shows it.", show_default=False)]

keys = typer.Typer(name="keys", no_args_is_help=True, rich_markup_mode=None)


@keys.command(short_help="Make a key, and print it: the only time that it is seen.")
def create(name: NameOption, scopes: ScopesOption = "read,write", database: DatabaseOption = None) -> None:
    """Make a key, and print it: the only time that it is seen. From the first key on, the service asks for one."""
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise typer.BadParameter(f"a name has 1 to {MAX_NAME} printable characters", param_hint="--name")
    with user_faults():
        from bapipe_api.keys import SCOPES, Keys

        wanted = [scope.strip() for scope in scopes.split(",")]
        if unknown := [scope for scope in wanted if scope not in SCOPES]:
            raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(SCOPES)}", param_hint="--scopes")
        with migrated_database(service_settings(database=database)) as store:
            typer.echo(Keys(store).create(name, wanted))


@keys.command("list", short_help="List the keys, without their secrets.")
def list_keys(database: DatabaseOption = None) -> None:
    """List the keys, without their secrets."""
    with user_faults(), migrated_database(service_settings(database=database)) as store:
        from bapipe_api.keys import Keys

        made = table("Keys", ["id", "name", "scopes", "made", "revoked"], text_columns=5)
        for key in Keys(store).all():
            revoked = "" if key.revoked_at is None else f"{key.revoked_at:%Y-%m-%d %H:%M}"
            made.add_row(key.id, key.name, ", ".join(sorted(key.scopes)), f"{key.created_at:%Y-%m-%d %H:%M}", revoked)
        console().print(made)


@keys.command(short_help="End a key for good.")
def revoke(key_id: IdArgument, database: DatabaseOption = None) -> None:
    """End a key for good: from the next request on it is refused."""
    with user_faults(), migrated_database(service_settings(database=database)) as store:
        from bapipe_api.keys import Keys

        if not Keys(store).revoke(key_id):
            raise typer.BadParameter(f"there is no key {key_id!r}; see bapipe keys list", param_hint="ID")
        typer.echo(f"revoked {key_id}")
