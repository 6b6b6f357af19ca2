"""`holdfast sessions export`, `import`, `fork`, `name`, `rewind`, `rebind`, `annotate` and `delete`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, BinaryIO, Literal

import click

from holdfast.cli import display
from holdfast.cli.options import (
    ConversationPlace,
    conversation_options,
    tenant_option,
    where_options,
)
from holdfast.cli.output import confirm, give, say
from holdfast.cli.session_backend import SessionBackend, open_backend
from holdfast.core.codec import encode
from holdfast.errors import InvalidValue
from holdfast.peers.conversion import READERS, convert
from holdfast.wire.api import objects as api


def _tell(session: api.Session, words: str, *, as_json: bool) -> None:
    """Print the id to stdout, for scripts, and the sentence for people to stderr; or all as JSON."""
    if as_json:
        give(encode(session))
    else:
        say(session.id)
        say(words, err=True)


@click.command(short_help="Write a conversation as lines of JSON.")
@click.argument("name", metavar="KEY|ID")
@click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to; stdout by default. A file appears when it is whole.",
)
@tenant_option
@where_options
def export(name: str, output: Path | None, at: ConversationPlace) -> None:
    """Write a conversation, with the conversations that it was forked from, for `import`.

    All conversations of a store are `holdfast db export`.

    \b
    Example:
      holdfast sessions export trip-to-oslo -o trip.jsonl
    """
    size = 0
    with open_backend(at) as here, display.bar() as tell, _written(output) as file:
        for piece in here.export(name):
            file.write(piece)
            size += len(piece)
            tell("bytes", size, None)
    say(f"{display.size(size)} exported", err=True)


@contextmanager
def _written(path: Path | None) -> Iterator[IO[bytes]]:
    """Stdout; or a file that appears when it is complete, readable by its owner alone."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
            try:
                yield file.file
            except BaseException:
                Path(file.name).unlink()
                raise
        Path(file.name).replace(path)
    except OSError as error:
        raise InvalidValue(f"{path} cannot be written: {error.strerror}; name another") from error


@click.command("import", short_help="Take in conversations, also those of other programs.")
@click.argument("file", type=click.File("rb"))
@click.option(
    "--from",
    "peer",
    type=click.Choice(sorted(READERS)),
    help="FILE is a file of this program, and is only read.",
)
@click.option(
    "--on-conflict",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What to do if a conversation of the file collides with another one here.",
)
@conversation_options
def import_command(
    file: BinaryIO,
    peer: str | None,
    on_conflict: Literal["stop", "skip"],
    as_json: bool,
    at: ConversationPlace,
) -> None:
    """Take in the conversations of FILE, which `export` wrote; - is stdin.

    Each is taken in whole or not at all, and one that is there already stays as it is.
    Conversations of another program keep their names as keys; a turn without an end is closed as after a crash, and
    reported.

    \b
    Examples:
      holdfast sessions import trip.jsonl --server http://127.0.0.1:8484
      holdfast sessions import --from docker-agent ~/.cagent/session.db
      holdfast sessions import --from goose ~/.local/share/goose/sessions/sessions.db
      holdfast sessions import --from openai-agents conversations.db
      holdfast sessions import --from openclaw ~/.openclaw/agents/main/sessions/sessions.json
    """
    with open_backend(at) as here:
        if peer is None:
            taken = here.take_in(file.read(), on_conflict=on_conflict)
        elif file.name == "<stdin>":
            raise click.UsageError("--from needs the name of a file: it is read more than once")
        else:
            taken = _taken_from(peer, Path(file.name), here, on_conflict)
    if as_json:
        give(encode(taken))
        return
    for skipped in taken.skipped:
        say(f"{skipped.id} skipped: {skipped.why}", err=True)
    for dropped in taken.dropped:
        say(display.dropped(dropped.id, dropped.permissions), err=True)
    for each in taken.imported:
        say(each)
    fresh, same, left_out = map(len, (taken.imported, taken.there_already, taken.skipped))
    say(display.taken(fresh, same, left_out), err=True)


def _taken_from(
    peer: str, path: Path, here: SessionBackend, on_conflict: Literal["stop", "skip"]
) -> api.Imported:
    """Import the conversations of another program's file, and print the repairs that each needed."""
    all_taken: list[api.Imported] = []
    with display.bar() as tell:
        for done, each in enumerate(convert(peer, path), start=1):
            for repair in each.repairs:
                say(f"{each.name}: {repair}", err=True)
            if each.exported:
                all_taken.append(here.take_in(each.exported, on_conflict=on_conflict))
            tell("conversations", done, None)
    return api.Imported(
        imported=tuple(one for each in all_taken for one in each.imported),
        there_already=tuple(one for each in all_taken for one in each.there_already),
        skipped=tuple(one for each in all_taken for one in each.skipped),
        dropped=tuple(one for each in all_taken for one in each.dropped),
    )


@click.command(short_help="Begin another conversation as this one stands, or stood.")
@click.argument("name", metavar="KEY|ID")
@click.option("--version", type=click.IntRange(0), metavar="N", help="As it stood at this version.")
@conversation_options
def fork(name: str, version: int | None, as_json: bool, at: ConversationPlace) -> None:
    """Begin another conversation as this one stands, or stood at a version. This one stays as it is.

    The id of the new one goes to stdout.

    \b
    Example:
      holdfast chat --session $(holdfast sessions fork trip-to-oslo --version 3)
    """
    with open_backend(at) as here:
        made = here.fork(name, version=version)
    _tell(made, f"{made.id} begins as {name} at version {made.version}", as_json=as_json)


@click.command("name", short_help="Give a conversation one more key.")
@click.argument("name", metavar="KEY|ID")
@click.argument("key")
@conversation_options
def name_command(name: str, key: str, as_json: bool, at: ConversationPlace) -> None:
    """Give a conversation one more key, a new one: for instance a line of a chat, which lists then show by itself.

    \b
    Example:
      holdfast sessions name conv_01jb1p6m3v8r7k2w5x9y0z4a6c trip-by-train
    """
    with open_backend(at) as here:
        named = here.name(name, key)
    _tell(named, f"{key} means {named.id}", as_json=as_json)


@click.command(short_help="Make a key mean its conversation as it was.")
@click.argument("key")
@click.argument("version", type=click.IntRange(0))
@conversation_options
def rewind(key: str, version: int, as_json: bool, at: ConversationPlace) -> None:
    """Make KEY mean its conversation as it was at VERSION. Nothing is lost: the rest stays under its old id.

    \b
    Example:
      holdfast sessions rewind trip-to-oslo 3
    """
    with open_backend(at) as here:
        before = here.session(key)
        made = here.rewind(key, version=version)
    words = f"{key} is at version {made.version} again; what came after stays as {before.id}"
    _tell(made, words, as_json=as_json)


@click.command(short_help="Move conversations to the agents of another source.")
@click.argument("name", metavar="[KEY|ID]", required=False)
@click.option("--source", metavar="SOURCE", help="Move all conversations of this source.")
@click.option(
    "--to",
    required=True,
    metavar="MODEL|SOURCE",
    help="An agent of that source, as a server lists it; in a store the source itself: [NAME=]REF, as `serve` takes it.",
)
@tenant_option
@where_options
def rebind(name: str | None, source: str | None, to: str, at: ConversationPlace) -> None:
    """Move a conversation, or all conversations of a source, to the agents of another source.

    They find a file that moved, a URL with another query and a source under its given name by themselves; this is for
    the rest. Histories stay as they are. Calls that wait for an approval can only be closed afterwards.

    \b
    Examples:
      holdfast sessions rebind trip-to-oslo --to butler --server http://127.0.0.1:8484
      holdfast sessions rebind --source https://old.example/team.yaml --to https://new.example/team.yaml
    """
    if (name is None) == (source is None):
        raise click.UsageError("name a conversation, or all of a source with --source SOURCE")
    with open_backend(at) as here:
        if name is not None:
            moved = here.rebind(name, model=to)
            _tell(moved, f"{name} goes on with {moved.source}", as_json=False)
            return
        assert source is not None
        rebound, busy = _rebound_all(here, source, to)
    for each in rebound:
        say(each)
    for each in busy:
        say(f"{each} is busy: run the command again when its turn has ended", err=True)
    say(f"{display.counted(len(rebound), 'session')} moved", err=True)


def _rebound_all(here: SessionBackend, source: str, to: str) -> tuple[list[str], list[str]]:
    """Move all sessions of a source, with and without a key. Returns the moved ones and the busy ones."""
    rebound: list[str] = []
    busy: list[str] = []
    for anonymous in (False, True):
        cursor: str | None = None
        while True:
            page = here.rebind_source(source, model=to, anonymous=anonymous, cursor=cursor)
            rebound += page.rebound
            busy += page.busy
            cursor = page.cursor
            if cursor is None:
                break
    return rebound, busy


@click.command(short_help="Give a conversation a title, and attributes.")
@click.argument("name", metavar="KEY|ID")
@click.option("--title", metavar="TEXT", help="What to call it.")
@click.option("--set", "given", multiple=True, metavar="NAME=VALUE", help="An attribute.")
@click.option("--unset", multiple=True, metavar="NAME", help="Take an attribute away.")
@conversation_options
def annotate(
    name: str,
    title: str | None,
    given: tuple[str, ...],
    unset: tuple[str, ...],
    as_json: bool,
    at: ConversationPlace,
) -> None:
    """Give a conversation a title, and attributes. They lie beside its history, which they do not change.

    \b
    Example:
      holdfast sessions annotate trip-to-oslo --title "Oslo in May" --set team=travel
    """
    if title is None and not given and not unset:
        raise click.UsageError("say what: --title, --set NAME=VALUE or --unset NAME")
    attributes: dict[str, str | None] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set takes NAME=VALUE, not {each!r}")
        attributes[key] = value
    attributes.update(dict.fromkeys(unset))
    with open_backend(at) as here:
        changed = here.change(name, title=title, attributes=attributes or None)
    _tell(changed, f"{name} is annotated", as_json=as_json)


@click.command(short_help="Delete a conversation for good.")
@click.argument("name", metavar="KEY|ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
@tenant_option
@where_options
def delete(name: str, yes: bool, at: ConversationPlace) -> None:
    """Delete a conversation for good: it is gone at once, and a turn that runs in it ends.

    \b
    Example:
      holdfast sessions delete trip-to-oslo --yes
    """
    with open_backend(at) as here:
        session = here.session(name)
        if not yes:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise InvalidValue("there is no terminal to ask at; add --yes to delete it")
            asked = f"Delete {name} ({session.title}, version {session.version}) for good?"
            confirm(asked)
        here.delete(session.id)
    say(f"{session.id} is deleted", err=True)
