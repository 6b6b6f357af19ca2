"""Whatever people, models and tools say comes back as they said it, and sorts as it does in every home."""

from __future__ import annotations

import pytest

from holdfast.core.history.conversation import Patch, SettingsChanged, Titled
from holdfast.core.items import SessionSettings, text_of
from holdfast.core.turns.events import MemoryAdded, StateSet
from holdfast.store.outcomes import SessionFilter
from holdfast.store.postgres.queries import compiled
from holdfast.store.postgres.store import PostgresStore
from tests.store.builders import ACME, Player

WORDS = [
    "",
    "\x00",
    "a\x00b",
    "\\x00",
    "'; drop table session; --",
    "ﬀ é e\u0301 🜁 \u202e",
    "$1 :name {now}",
]


@pytest.mark.parametrize("word", WORDS, ids=ascii)
async def test_words_come_back_as_they_were_said(ada: Player, word: str) -> None:
    """PostgreSQL's text cannot hold U+0000, so none of them is text there."""
    state = StateSet(name=f"n{word}", value=f"v{word}")
    memory = MemoryAdded(agent="butler", memory_id=f"m{word}", text=word)
    turn = await ada.play("trip", f"say {word}", f"said {word}", changes=(state, memory))
    settings = SettingsChanged(settings=SessionSettings().with_attributes(town=f"O{word}"))
    patches: tuple[Patch, ...] = (Titled(title=f"t{word}"), settings)
    await ada.store.annotate(ACME, turn.session_id, [(None, patch) for patch in patches])
    other = await ada.open("trip", f"more {word}")
    ended = await other.end("model_error", detail=f"because {word}")

    found = await ada.snapshot("trip")
    assert dict(found.state) == {f"n{word}": f"v{word}"}
    assert found.notes.title == f"t{word}"
    said = [text_of(item.content) for item in found.items if hasattr(item, "content")]
    assert f"say {word}" in said
    assert f"said {word}" in said
    assert [row.text for row in await ada.store.memories(ACME, "butler")] == [word]
    assert (await other.row()).detail == ended.detail == f"because {word}"
    where = SessionFilter(attributes=(("town", f"O{word}"),))
    listed = await ada.store.sessions(ACME, where=where)
    assert [each.session.id for each in listed.sessions] == [turn.session_id]
    assert (
        await ada.store.sessions(ACME, where=SessionFilter(attributes=(("town", "O"),)))
    ).sessions == (listed.sessions if word == "" else ())


async def test_every_text_sorts_by_its_bytes(postgres: PostgresStore) -> None:
    """A database's own collation may know better; then pages would differ from home to home."""
    found = await postgres.engine.run(
        lambda db: db.fetch(
            compiled(
                "collations",
                "select c.relname || '.' || a.attname from pg_attribute a "
                "join pg_class c on c.oid = a.attrelid join pg_namespace n on n.oid = c.relnamespace "
                "join pg_collation o on o.oid = a.attcollation "
                "where n.nspname = 'holdfast' and c.relkind = 'r' and o.collname <> 'C' "
                "and c.relname <> 'migration'",
            ),
            {},
        )
    )
    assert [name for (name,) in found] == ["session.lease_nonce"], "compared, and never sorted"


def test_queries_are_compiled_to_numbered_parameters() -> None:
    made = compiled("sample", "select :b::bigint, {now} from x where a = :a and b = :b")
    assert made.names == ("b", "now_ms", "a")
    assert made.sql == (
        "select $1::bigint, coalesce($2::bigint, floor(extract(epoch from clock_timestamp()) * 1000)::bigint) "
        "from x where a = $3 and b = $1"
    )
