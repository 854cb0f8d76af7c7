"""`tacit watch`: the report of a study while it runs, in the browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.options import Json, Quiet

StudyFolder = Annotated[Path, typer.Argument(help="The folder of a study that is running.")]
Port = Annotated[int, typer.Option(help="The port on localhost; 0 takes a free one.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]


def watch_command(
    folder: StudyFolder,
    port: Port = 8311,
    browser: Open = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve a study's report on localhost and keep it up to date, until Ctrl-C."""
    import webbrowser

    from tacit.report.live_server import open_server

    with open_server(folder, port) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        if as_json:
            typer.echo(json.dumps({"address": address}))
        elif not quiet:
            typer.echo(f"watching {folder} at {address} (Ctrl-C ends it)")
        if browser:
            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return
