"""`holdfast acp`: what an editor starts to have agents by the Agent Client Protocol."""

from __future__ import annotations

import asyncio
import os.path
from glob import escape, glob
from io import FileIO

import click

from holdfast.cli.acp.editor import standard_editor, taken_output
from holdfast.cli.acp.methods import AcpAgent
from holdfast.cli.options import ConversationPlace, where_options
from holdfast.cli.server_choice import ChosenServer, reach
from holdfast.client.aio import AsyncClient


@click.command(short_help="Serve an editor by the Agent Client Protocol, over stdio.")
@click.argument("agent", required=False)
@where_options
def acp(agent: str | None, at: ConversationPlace) -> None:
    """Let an editor talk to AGENT: a source as `serve` takes it, or with --server the name of one of its agents.

    An editor starts this command and speaks the Agent Client Protocol with it, over standard input and output.
    A prompt goes on when the editor goes: on the server, or without --server at the next start.

    \b
    Examples:
      holdfast acp coder.yaml                       your own agent, on a store of your own
      holdfast acp coder --server http://127.0.0.1:8484
      holdfast connect zed                          prints the settings of an editor
    """
    output = taken_output()  # before an agent's own code could print
    with reach(agent, at) as reached:
        files = () if at.server is not None else own_files(agent, at.store)
        asyncio.run(_serve(output, reached, at.key, files))


def own_files(agent: str | None, store: str) -> tuple[str, ...]:
    """The files of a server of our own, as far as the command line names them: its agent's, and its store's."""
    source = (agent or "").rpartition("=")[2]
    database = store.removeprefix("sqlite:///") if store.startswith("sqlite:///") else ""
    files = glob(f"{escape(database)}*") if database else []
    return tuple(os.path.realpath(each) for each in (*files, source) if os.path.exists(each))


async def _serve(
    output: FileIO, reached: ChosenServer, key: str | None, files: tuple[str, ...]
) -> None:
    editor = await standard_editor(output)
    async with AsyncClient(reached.address, key=key) as client:
        ours = AcpAgent(client, editor, model=reached.model, where=reached.where, reserved=files)
        try:
            await editor.serve(ours.handle)
        finally:
            await ours.end()
