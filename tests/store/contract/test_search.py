"""Search: which sessions are found by which words, in which order, whatever the index knows."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import limits
from holdfast.core.exchanges import Followed
from holdfast.core.history.conversation import Titled, Visibility
from holdfast.core.items import AssistantMessage, Item, Reasoning, Refusal, Text, UserMessage
from holdfast.core.turns import events as ev
from holdfast.errors import InvalidCursor
from holdfast.ids import (
    CallId,
    ItemId,
    MessageId,
    Minter,
    ReasoningId,
    SessionId,
    SessionKey,
    Tenant,
    Version,
)
from holdfast.store.operations import lists
from holdfast.store.operations import search as searches
from holdfast.store.outcomes import EVERYTHING, ExcerptPiece, SearchMatch, SessionFilter
from holdfast.store.search import matches, span_reader
from holdfast.store.search.matches import parse_query
from holdfast.store.search.words import FoldedText
from holdfast.store.steps import Operation, PauseStep
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.store.builders import ACME, Player
from tests.store.contract.words import changes_nothing
from tests.store.homes import Damage


async def search(
    store: Store,
    typed: str,
    where: SessionFilter = EVERYTHING,
    *,
    limit: int = 3,
    tenant: Tenant = ACME,
) -> list[SearchMatch]:
    """All that is found, leafed through."""
    found: list[SearchMatch] = []
    cursor: str | None = None
    while True:
        page = await store.search(
            tenant, parse_query(typed), where=where, cursor=cursor, limit=limit
        )
        assert len(page.matches) <= limit
        found += page.matches
        if page.cursor is None:
            return found
        cursor = page.cursor


async def ids(store: Store, typed: str, where: SessionFilter = EVERYTHING) -> list[SessionId]:
    return [match.info.session.id for match in await search(store, typed, where)]


async def index_all(store: Store, *, bytes_max: int = 1 << 16) -> int:
    """Bring the index to its end; how many steps it took."""
    steps = 1
    while (await store.index(bytes_max=bytes_max)).more:
        steps += 1
    return steps


@pytest.fixture(params=["indexed", "not indexed", "half indexed"])
async def indexing(request: pytest.FixtureRequest, store: Store) -> Indexing:
    return Indexing(store, request.param)


class Indexing:
    """How far the index has come when somebody searches; it must make no difference."""

    def __init__(self, store: Store, how: str) -> None:
        self._store = store
        self._how = how

    async def __call__(self) -> None:
        if self._how == "indexed":
            await index_all(self._store)
        if self._how == "half indexed":
            await self._store.index(bytes_max=1)


# ── what is found ────────────────────────────────────────────────────────────────────────────


async def test_a_session_is_found_by_what_the_user_and_the_agent_said(
    store: Store, player: Player, indexing: Indexing
) -> None:
    trip = await player.play("trip", "To Oslo, please", "On which day?")
    await player.play("other", "Hello", "Hi")
    await indexing()
    assert await ids(store, "oslo") == [trip.session_id]
    assert await ids(store, "WHICH day") == [trip.session_id]
    assert await ids(store, "osl*") == [trip.session_id]
    assert await ids(store, "osl") == []
    assert await ids(store, "") == await ids(store, "…") == []


async def test_all_words_have_to_be_in_one_message(
    store: Store, player: Player, indexing: Indexing
) -> None:
    trip = await player.play("trip", "To Oslo, please", "On which day?")
    await indexing()
    assert await ids(store, "please oslo") == [trip.session_id]
    assert await ids(store, "oslo day") == []


async def test_words_in_quotes_follow_each_other(
    store: Store, player: Player, indexing: Indexing
) -> None:
    trip = await player.play("trip", "On Friday to Oslo, on Monday back")
    await indexing()
    assert await ids(store, '"on monday"') == [trip.session_id]
    assert await ids(store, '"on back"') == []
    assert await ids(store, '"to osl"*') == [trip.session_id]


@pytest.mark.parametrize("typed", ["zurich", "ZÜRICH", "straße", "東京", "3.11", "naïve", "don't"])
async def test_case_and_accents_do_not_matter_and_every_script_counts(
    store: Store, player: Player, indexing: Indexing, typed: str
) -> None:
    turn = await player.play("trip", "Nach Zürich, STRASSE 5; 私は東京へ行く; 3.11 is naive, don't")
    await indexing()
    assert await ids(store, typed) == [turn.session_id]


@pytest.mark.parametrize(
    "typed",
    [
        *(
            '"',
            '""',
            "*",
            "a*b",
            "(",
            ")",
            "AND",
            "NOT x",
            "x OR",
            "NEAR(a b)",
            "^a",
            "words:x",
            "-x",
        ),
        *(
            "'",
            "';--",
            "{a b}: c",
            "\x00",
            "a\x00b",
            "%",
            "_",
            "\\",
            "x" * 5000,
            "é" * 500,
            "a " * 200,
        ),
    ],
)
async def test_nothing_that_can_be_typed_is_an_error(
    store: Store, player: Player, typed: str
) -> None:
    await player.play("trip", "To Oslo")
    await index_all(store)
    assert await ids(store, typed) == []


async def test_what_people_do_not_read_is_not_found(
    store: Store, player: Player, mint: Minter, indexing: Indexing
) -> None:
    """Reasoning, tools, sub-agents, discarded turns."""
    turn = await player.open("trip", "Hello")
    call = turn.new_call("secretly")
    thought = Reasoning(id=mint(ReasoningId), text="secretly")
    await turn.record(ev.StepStarted(), ev.Answered(items=(thought, call), finish="tool_calls"))
    said, path = (Text(text="secretly"),), (call.id,)
    task = UserMessage(id=mint(MessageId), content=said, path=path)
    aside = AssistantMessage(id=mint(MessageId), content=said, path=path)
    await turn.record(ev.BranchOpened(call=call.id, agent="helper", task=task))
    await turn.record(ev.StepStarted(path=path), ev.Answered(items=(aside,), path=path))
    await turn.record(ev.ToolFinished(result=turn.result(call)))
    await turn.answer("Yes")
    await turn.commit()
    await player.discard("trip", "secretly")
    await player.open("trip", "secretly")
    await indexing()
    assert await ids(store, "secretly") == []
    assert await ids(store, "done") == []
    assert await ids(store, "yes") == [turn.session_id]


async def test_refusals_are_read_too(store: Store, player: Player, mint: Minter) -> None:
    refusal = AssistantMessage(id=mint(MessageId), content=(Refusal(text="I cannot"),))
    turn = await player.play("trip", "Hello", refusal)
    assert await ids(store, "cannot") == [turn.session_id]


async def test_a_session_is_found_by_its_name(
    store: Store, player: Player, indexing: Indexing
) -> None:
    turn = await player.play("trip", "Hello there", "Hi")
    await indexing()
    await store.annotate(ACME, turn.session_id, [(None, Titled(title="Oslo in May"))])
    await indexing()
    [match] = await search(store, "oslo may")
    assert (match.item, match.position) == (None, None)
    assert match.excerpt == (
        ExcerptPiece(text="Oslo", hit=True),
        ExcerptPiece(text=" in "),
        ExcerptPiece(text="May", hit=True),
    )
    await store.annotate(ACME, turn.session_id, [(None, Titled(title="Bergen"))])
    assert await ids(store, "oslo") == []
    await indexing()
    assert await ids(store, "oslo") == []
    assert await ids(store, "bergen") == [turn.session_id]


async def test_a_match_says_which_message_and_the_latest_one(
    store: Store, player: Player, indexing: Indexing
) -> None:
    await player.play("trip", "Hello", "Hi")
    await player.play("trip", "To Oslo", "When?")
    await player.play("trip", "Rather to OSLO by train", "Good")
    await indexing()
    [match] = await search(store, "oslo")
    snapshot = await player.snapshot("trip")
    assert match.position == 4
    item = snapshot.items[4]
    assert isinstance(item, UserMessage) and match.item == item.id
    assert match.excerpt == (
        ExcerptPiece(text="Rather to "),
        ExcerptPiece(text="OSLO", hit=True),
        ExcerptPiece(text=" by train"),
    )
    assert match.info == await store.info(ACME, snapshot.session_id)


# ── what changes ─────────────────────────────────────────────────────────────────────────────


async def test_a_hidden_message_is_not_found_until_it_is_shown_again(
    store: Store, player: Player, indexing: Indexing
) -> None:
    turn = await player.play("trip", "Hello", "My number is 4711")
    number = _id(turn.turn.items[-1])
    await indexing()
    for shown in (False, True):
        await store.annotate(ACME, turn.session_id, [(number, Visibility(to_people=shown))])
        await indexing()
        assert await ids(store, "4711") == ([turn.session_id] if shown else [])


async def test_what_is_hidden_from_the_model_is_still_found(store: Store, player: Player) -> None:
    turn = await player.play("trip", "Hello", "My number is 4711")
    number = _id(turn.turn.items[-1])
    await store.annotate(ACME, turn.session_id, [(number, Visibility(to_model=False))])
    assert await ids(store, "4711") == [turn.session_id]


async def test_a_deleted_session_is_not_found_any_more(
    store: Store, player: Player, indexing: Indexing
) -> None:
    turn = await player.play("trip", "To Oslo")
    await store.annotate(ACME, turn.session_id, [(None, Titled(title="Oslo"))])
    await indexing()
    await store.remove(ACME, turn.session_id)
    assert await ids(store, "oslo") == []
    while (await store.prune(limit=2)).more:
        pass
    await index_all(store)
    assert await ids(store, "oslo") == []


async def test_a_fork_is_found_by_its_past_as_it_was(
    store: Store, player: Player, mint: Minter, indexing: Indexing
) -> None:
    turn = await player.play("trip", "To Oslo", "When?")
    await indexing()
    await player.play("trip", "On Friday", "Good")
    fork = (await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))).id
    await player.play(fork, "On Monday", "Good")
    deeper = (await store.fork(ACME, fork, version=Version(2), fresh=mint(SessionId))).id
    await indexing()
    assert set(await ids(store, "oslo")) == {turn.session_id, fork, deeper}
    assert set(await ids(store, "monday")) == {fork, deeper}
    assert await ids(store, "friday") == [turn.session_id]


async def test_what_is_hidden_in_one_session_is_seen_in_its_fork(
    store: Store, player: Player, mint: Minter, indexing: Indexing
) -> None:
    turn = await player.play("trip", "Hello", "My number is 4711")
    number = _id(turn.turn.items[-1])
    before, after = mint(SessionId), mint(SessionId)
    await store.fork(ACME, turn.session_id, version=Version(1), fresh=before)
    await store.annotate(ACME, turn.session_id, [(number, Visibility(to_people=False))])
    await store.fork(ACME, turn.session_id, version=Version(1), fresh=after)
    await indexing()
    assert await ids(store, "4711") == [before]


async def test_a_fork_of_a_deleted_session_is_found_by_its_past(
    store: Store, player: Player, mint: Minter, indexing: Indexing
) -> None:
    turn = await player.play("trip", "To Oslo", "When?")
    fork = (await store.fork(ACME, turn.session_id, version=Version(1), fresh=mint(SessionId))).id
    await store.remove(ACME, turn.session_id)
    while (await store.prune(limit=2)).more:
        pass
    await indexing()
    assert await ids(store, "when") == [fork]
    await store.remove(ACME, fork)
    while (await store.prune(limit=2)).more:
        pass
    await index_all(store)
    assert await ids(store, "when") == []


async def test_rewinds_and_resets_are_followed(
    store: Store, player: Player, mint: Minter, indexing: Indexing
) -> None:
    turn = await player.play("trip", "To Oslo", "When?")
    await player.play("trip", "On Friday", "Good")
    await indexing()
    rewound = await store.bind(ACME, SessionKey("trip"), fresh=mint(SessionId), version=Version(1))
    assert set(await ids(store, "oslo")) == {turn.session_id, rewound.id}
    assert await ids(store, "oslo", SessionFilter(key_prefix="trip")) == [rewound.id]
    assert await ids(store, "friday") == [turn.session_id]
    await store.bind(ACME, SessionKey("trip"), fresh=mint(SessionId))
    assert await ids(store, "oslo", SessionFilter(key_prefix="trip")) == []


# ── in the lines of a chat ───────────────────────────────────────────────────────────────────


async def in_lines(store: Store, typed: str) -> list[tuple[SessionId, SessionId | None]]:
    return [(match.info.session.id, match.line) for match in await search(store, typed)]


@pytest.fixture(params=["in one page", "in small pages"])
def effort(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far a page of a search gets; it must make no difference."""
    if request.param == "in small pages":
        monkeypatch.setattr(limits, "search_items_max", 1)


@pytest.mark.usefixtures("effort")
async def test_what_was_said_in_any_line_of_a_chat_is_found_once(
    store: Store, player: Player, indexing: Indexing
) -> None:
    trip = (
        await player.play("trip", "To Oslo", "When?", followed=Followed(name="trip"))
    ).session_id
    await player.play("trip", "On Friday", "By ferry?")
    await player.play("other", "Oslo", "Yes")
    again = await player.play_line("trip", "On Friday", "By train, or by bus?", after=trip)
    edit = await player.play_line("trip", "To Bergen", "By train?")
    chat = await player.id_of("trip")
    assert chat == again.session_id
    await indexing()
    assert len(await in_lines(store, "oslo")) == 2
    assert await in_lines(store, "ferry") == [(chat, trip)]
    assert await in_lines(store, "bus") == [(chat, None)]
    assert await in_lines(store, "bergen") == [(chat, edit.session_id)]
    assert await in_lines(store, '"by train" bergen') == []
    folded = SessionFilter(anonymous=True)
    assert await ids(store, "ferry", folded) == [trip]
    await store.name(ACME, trip, SessionKey("by-sea"))
    assert await in_lines(store, "ferry") == [(trip, None)], "it is listed by itself"
    assert await in_lines(store, "bergen") == [(chat, edit.session_id)], "of the chat alone"
    await store.remove(ACME, chat)
    assert len(await in_lines(store, "oslo")) == 1 and await in_lines(store, "bergen") == []


@pytest.mark.usefixtures("effort")
async def test_a_question_about_a_chat_is_not_found(
    store: Store, player: Player, indexing: Indexing
) -> None:
    """Each chat has some, for a title and for tags, with the same words in all of them."""
    await player.play("trip", "To Oslo", "When?", followed=Followed(name="trip"))
    await player.play_line("trip", "Write a title\nUSER: To Oslo\nASSISTANT: When?", "Travel")
    edit = await player.play_line("trip", "Write a title: To Oslo", "When?")
    await player.play_line("trip", "Write tags\n<chat>\nTo Bergen\n</chat>", "sea")
    await indexing()
    chat = await player.id_of("trip")
    assert await in_lines(store, "travel") == []
    assert await in_lines(store, "title") == [(chat, edit.session_id)]
    (match,) = await in_lines(store, "tags")
    assert match[0] == chat, "it quotes nothing that was said"


# ── in which order, for whom ─────────────────────────────────────────────────────────────────


async def test_matches_are_listed_by_their_last_turn_and_can_be_leafed_through(
    store: Store, player: Player, clock: ManualClock, indexing: Indexing
) -> None:
    made = []
    for n in range(7):
        said = "oslo " * (7 - n) if n % 3 else "bergen"
        made.append((await player.play(f"s{n}", said)).session_id)
        clock.advance(n % 2)
    await indexing()
    expected = [made[n] for n in (5, 4, 2, 1)]
    for limit in (1, 2, 4, 5):
        found = await search(store, "oslo", limit=limit)
        assert [match.info.session.id for match in found] == expected
    page = await store.search(ACME, parse_query("oslo"), limit=4)
    assert page.cursor is None


async def test_a_search_has_the_filters_of_a_list(
    store: Store, player: Player, indexing: Indexing, clock: ManualClock
) -> None:
    a = (await player.play("a-1", "Oslo", agent="butler")).session_id
    clock.advance(10)
    b = (await player.play("b-1", "Oslo", agent="cook")).session_id
    nameless = (await player.play(None, "Oslo")).session_id
    await player.open("b-1", "busy")
    await indexing()
    row = await store.session(ACME, b)
    assert row is not None
    for where, expected in (
        (EVERYTHING, [b, a]),
        (SessionFilter(agent="cook"), [b]),
        (SessionFilter(key_prefix="a-"), [a]),
        (SessionFilter(busy=True), [b]),
        (SessionFilter(busy=False), [a]),
        (SessionFilter(active_from_ms=row.active_ms), [b]),
        (SessionFilter(active_before_ms=row.active_ms), [a]),
        (SessionFilter(anonymous=True), [nameless]),
        (SessionFilter(attributes=(("mood", "good"),)), []),
    ):
        assert await ids(store, "oslo", where) == expected, where


@pytest.mark.parametrize("typed", ["oslo", ""])
async def test_a_cursor_of_somebody_elses_is_refused(store: Store, typed: str) -> None:
    with pytest.raises(InvalidCursor):
        await store.search(ACME, parse_query(typed), cursor="x")


async def test_nobody_finds_what_is_another_tenants(
    store: Store, player: Player, mint: Minter, indexing: Indexing
) -> None:
    rival = Player(store, mint, tenant=Tenant("rival"))
    await rival.renew()
    for n in range(3):
        await rival.play(f"s{n}", "Oslo")
    ours = await player.play("trip", "Oslo")
    await indexing()
    assert await ids(store, "oslo") == [ours.session_id]
    found = await search(store, "osl*", tenant=rival.tenant)
    assert {match.info.session.tenant for match in found} == {rival.tenant}
    assert await search(store, "oslo", tenant=Tenant("third")) == []


# ── the index ────────────────────────────────────────────────────────────────────────────────


async def test_indexing_changes_nothing_that_anybody_can_read(store: Store, player: Player) -> None:
    await player.play("trip", "To Oslo")
    await player.open("trip", "And back")
    async with changes_nothing(store):
        await index_all(store)
        await index_all(store)
    assert (await store.index()).sessions == 0


async def test_small_steps_come_to_the_same_end(store: Store, player: Player) -> None:
    made = [(await player.play(f"s{n}", f"Oslo {n}", "Hm")).session_id for n in range(4)]
    for n in range(4):
        await player.play("s0", f"Bergen {n}", "Hm")
    await index_all(store, bytes_max=1)
    assert set(await ids(store, "oslo")) == set(made)
    assert await ids(store, '"bergen 2"') == [made[0]]
    assert (await store.index()).sessions == 0


async def test_items_that_cannot_be_read_are_passed_over(
    store: Store, player: Player, damage: Damage, indexing: Indexing
) -> None:
    turn = await player.play("trip", "To Oslo", "When?")
    await damage.item(ACME, turn.session_id, 0, b"\x00 oslo")
    await store.annotate(ACME, turn.session_id, [(None, Titled(title="A trip"))])
    await indexing()
    assert await ids(store, "oslo") == []
    assert await ids(store, "when") == [turn.session_id]


async def test_a_restored_session_is_found(store: Store, player: Player) -> None:
    turn = await player.play("trip", "To Oslo", "When?")
    await index_all(store)
    dump = await store.dump(ACME, turn.session_id)
    assert dump is not None
    assert await ids(store, "oslo") == [turn.session_id]


def _id(item: Item) -> ItemId:
    assert not isinstance(item.id, CallId)
    return item.id


# ── what it costs ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("limit", "least"),
    [("search_items_max", 1), ("search_bytes_max", 1), ("search_s", 0.0)],
)
async def test_a_page_ends_when_it_has_cost_enough_and_the_next_goes_on_inside_a_session(
    store: Store,
    player: Player,
    clock: ManualClock,
    indexing: Indexing,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    least: float,
) -> None:
    """One message, and no more, is looked through for a page; nothing is missed, and nothing found twice."""
    others = await player.play("others", "Bergen")
    clock.advance(1)
    trip = await player.play("trip", "Hello")
    await player.play("trip", "Oslo, to begin with")
    for n in range(4):
        await player.play("trip", f"Bergen {n}")
    await indexing()
    monkeypatch.setattr(limits, limit, least)
    monkeypatch.setattr(
        limits, "search_hits_max", 0
    )  # nothing is narrowed down: everything is looked through
    page = await store.search(ACME, parse_query("begin"), limit=5)
    assert page.matches == () and page.cursor is not None
    assert await ids(store, '"oslo to"') == [trip.session_id]
    assert await ids(store, '"bergen 3"') == [trip.session_id]
    assert await ids(store, "bergen") == [trip.session_id, others.session_id]
    assert await ids(store, '"oslo bergen"') == []


async def test_what_lies_further_back_than_is_read_ahead_is_found(
    store: Store, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ends of some spans are read together, and the rest of each as it is needed."""
    for name, size in (("SPANS_AT_ONCE", 2), ("POSITIONS_AT_ONCE", 6), ("PAGE", 4)):
        monkeypatch.setattr(span_reader, name, size)
    monkeypatch.setattr(lists, "NAMED_AT_ONCE", 3)
    made = []
    for number in range(5):
        made.append(
            (await player.play(f"trip-{number}", "oslo in june", f"bergen {number}")).session_id
        )
        for _ in range(number):
            await player.play(f"trip-{number}", "and then", "home")
            await store.index()
    for bytes_max in (limits.search_bytes_max, 300):
        monkeypatch.setattr(limits, "search_bytes_max", bytes_max)
        assert await ids(store, "june oslo") == made[::-1]
        assert await ids(store, "bergen 3") == [made[3]]
        assert await ids(store, "oslo bergen") == []
        await index_all(store)


async def test_the_first_message_of_a_chunk_is_found(store: Store, player: Player) -> None:
    trip = await player.play("trip", "Hello")
    await index_all(store)
    await player.play("trip", "Oslo")
    assert await ids(store, "oslo") == [trip.session_id]
    await index_all(store)
    assert await ids(store, "oslo") == [trip.session_id]


async def test_what_was_too_much_to_be_read_ahead_is_found(
    store: Store, player: Player, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most of it is not looked at: what is sought is the last that was said."""
    early = await player.play("early", "Hello", "Oslo")
    clock.advance(1)
    for _ in range(5):
        await player.play("late", "and on", "and on")
    late = await player.play("late", "Oslo", "Oslo")
    monkeypatch.setattr(limits, "search_bytes_max", 1000)
    page = await store.search(ACME, parse_query("oslo"))
    assert [each.info.session.id for each in page.matches] == [late.session_id, early.session_id]


async def test_a_page_ends_among_items_that_no_person_reads(
    store: Store, player: Player, mint: Minter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stretch without a message costs something as well, and the next page goes on before it."""
    turn = await player.open("trip", "To Oslo")
    call = turn.new_call("help")
    await turn.record(ev.StepStarted(), ev.Answered(items=(call,), finish="tool_calls"))
    said, path = (Text(text="aside"),), (call.id,)
    task = UserMessage(id=mint(MessageId), content=said, path=path)
    await turn.record(ev.BranchOpened(call=call.id, agent="helper", task=task))
    thoughts = tuple(Reasoning(id=mint(ReasoningId), text="aside", path=path) for _ in range(4))
    aside = AssistantMessage(id=mint(MessageId), content=said, path=path)
    await turn.record(ev.StepStarted(path=path), ev.Answered(items=(*thoughts, aside), path=path))
    await turn.record(ev.ToolFinished(result=turn.result(call)))
    await turn.answer("Yes")
    await turn.commit()
    monkeypatch.setattr(span_reader, "PAGE", 1)
    monkeypatch.setattr(limits, "search_items_max", 2)
    monkeypatch.setattr(limits, "search_hits_max", 0)
    pages = 0
    page = await store.search(ACME, parse_query('"oslo to"'))
    while page.cursor is not None:
        pages += 1
        page = await store.search(ACME, parse_query('"oslo to"'), cursor=page.cursor)
    assert pages > 2
    assert await ids(store, '"to oslo"') == [turn.session_id]


async def test_a_page_ends_among_sessions_with_nothing_to_read(
    store: Store, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their names may have changed since they were indexed, and are looked at."""
    made = [(await player.play(f"trip-{n}", "Oslo")).session_id for n in range(3)]
    await index_all(store)
    for session_id in made:
        await store.annotate(ACME, session_id, [(None, Titled(title="Bergen"))])
    monkeypatch.setattr(limits, "search_items_max", 1)
    page = await store.search(ACME, parse_query("hammerfest"))
    assert page.matches == () and page.cursor is not None
    assert await ids(store, "hammerfest") == []


async def test_a_chunk_with_too_many_words_is_found(
    store: Store, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words are not named in the index, so every question leads to it."""
    monkeypatch.setattr(searches, "WORDS_BYTES_MAX", 100)
    long = await player.play("long", "To Oslo by way of Bergen and Tromsø", "When?")
    short = await player.play("short", "Oslo")
    await index_all(store)
    assert await ids(store, "oslo") == [short.session_id, long.session_id]
    assert await ids(store, '"bergen and tro"*') == [long.session_id]
    assert await ids(store, '"bergen tromsø"') == []
    assert await ids(store, "~") == await ids(store, "hammerfest") == []


async def test_a_search_sees_one_moment(
    store: Store, player: Player, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while it gives way to others."""
    other = await player.play("other", "Oslo")
    clock.advance(1)
    long = await player.play("long", f"{'so it goes on and on ' * 2_000} to Oslo")
    begun = Pieces(monkeypatch).begun
    removed = asyncio.Event()
    pauses = iter(range(5_000))  # the memory home removes nothing meanwhile

    def give_way() -> Operation[None]:
        while not removed.is_set() and next(pauses, None) is not None:
            yield PauseStep()

    monkeypatch.setattr(searches, "give_way", give_way)
    monkeypatch.setattr(lists, "NAMED_AT_ONCE", 1)
    asking = asyncio.create_task(ids(store, "oslo"))
    await begun.wait()
    await store.remove(ACME, other.session_id)
    removed.set()
    assert await asking == [long.session_id, other.session_id]
    assert await ids(store, "oslo") == [long.session_id]


async def test_a_search_ends_when_it_is_not_waited_for_any_more(
    store: Store, player: Player, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "so it goes on and on " * 20_000
    await player.play("trip", text)
    pieces = Pieces(monkeypatch)
    asking = asyncio.create_task(store.search(ACME, parse_query('"on and goes" on')))
    await pieces.begun.wait()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await store.close()  # which waits for what is under way
    assert pieces.count < len(text) // matches.PIECE_CHARS


class Pieces:
    """The pieces of texts that are looked through, in whatever thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.begun = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        monkeypatch.setattr(matches, "FoldedText", self._folded)

    def _folded(self, piece: str) -> FoldedText:
        self.count += 1
        self._loop.call_soon_threadsafe(self.begun.set)
        return FoldedText(piece)
