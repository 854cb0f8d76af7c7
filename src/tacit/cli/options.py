"""Arguments and options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.completion import complete_study

StudyArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[STUDY.yaml] [key=value]...", autocompletion=complete_study),
]
Data = Annotated[str | None, typer.Option(help="A folder with data files, in place of TACIT_DATA.")]
Json = Annotated[bool, typer.Option("--json", help="JSON output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
NamesOnly = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print only the names, one per line.")
]
