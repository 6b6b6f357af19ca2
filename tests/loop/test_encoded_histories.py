"""What a model sees of the past costs what is new, and is the same bytes whatever was kept."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.exchanges import WHOLE, ShownPast
from holdfast.core.history.conversation import (
    Snapshot,
    Summarized,
    Titled,
    Visibility,
    seen_after,
    seen_by_model,
)
from holdfast.core.items import (
    AssistantMessage,
    Blob,
    Image,
    Inline,
    Item,
    Text,
    ToolResult,
    UserMessage,
    item_id,
)
from holdfast.core.turns import events as ev
from holdfast.errors import TurnFailed
from holdfast.ids import MessageId, SessionId
from holdfast.loop.context import prompt_for, view_for
from holdfast.loop.encoded_histories import (
    ENTRY_BYTES,
    PIECE_BYTES,
    PIECES_MAX,
    EncodedHistories,
    joined,
)
from holdfast.models.model import Prompt
from holdfast.testing import says
from holdfast.tools.tool import ToolOutput, ToolRun
from holdfast.wire.openai.chat.messages import ChatDialect, ChatMessage, spoken
from tests.core.builders import (
    after,
    answered,
    asked,
    call,
    interrupted,
    mint,
    result,
    said,
    summary,
    user,
)
from tests.core.histories import (
    PLANS,
    Plan,
    ending,
    new_session,
    noted,
    played,
    turn_on,
    waiting_for,
    with_turn,
)
from tests.core.test_who_sees_what import REMARKS, Remark, remarked
from tests.loop.stage import (
    Deed,
    Model,
    OpenInMemory,
    Stage,
    agent,
    malformed,
    messages_of,
    scripted,
    words,
)

PLENTY = 1 << 20


class Counting(ChatDialect):
    """The chat dialect, which remembers how many items it was given to encode."""

    def __init__(self) -> None:
        super().__init__()
        self.items = 0

    def encode(self, items: Sequence[Item]) -> bytes:
        self.items += len(items)
        return super().encode(items)

    def take(self) -> int:
        taken, self.items = self.items, 0
        return taken


async def asked_on(
    snapshot: Snapshot,
    histories: EncodedHistories,
    *said_now: Item,
    dialect: ChatDialect | None = None,
    happened: Sequence[ev.Event] = (),
) -> tuple[Prompt, OpenInMemory]:
    """What a model is asked in the first step of a turn on this session."""
    butler = agent("butler", model=Model(dialect=dialect or ChatDialect()))
    results = [] if said_now else [result(each) for each in snapshot.waiting]
    turn = OpenInMemory(turn_on(snapshot, *(said_now or (*results, user("Well?")))), snapshot)
    await turn.record(*happened, ev.StepStarted())
    prompt = await prompt_for(butler, (), turn, view_for(butler, (), turn, histories))
    assert malformed(messages_of(prompt)) == []
    return prompt, turn


def anew(turn: OpenInMemory) -> list[ChatMessage]:
    """What the model will see of this turn and all before it once it is part of the history, in one go."""
    whole = ending(turn.snapshot, after(turn.turn, answered(said("Last."))))
    *seen, last = seen_by_model(whole)
    assert isinstance(last, AssistantMessage)
    return spoken(seen)


def merged(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The same messages, what an assistant says in several made one.

    If everything between two steps was hidden, it depends on where a turn ends whether they are one message.
    """
    shown: list[ChatMessage] = []
    for message in messages:
        if shown and shown[-1].role == message.role == "assistant":
            before = shown.pop()
            text = "".join(
                each.content for each in (before, message) if isinstance(each.content, str)
            )
            calls = [*(before.tool_calls or ()), *(message.tool_calls or ())]
            message = ChatMessage(role="assistant", content=text, tool_calls=calls)
        shown.append(message)
    return shown


# ── the same bytes ───────────────────────────────────────────────────────────────────────────

MOVES = st.lists(
    st.tuples(PLANS, REMARKS, st.sampled_from(["go on", "fork", "rewind"])), min_size=1, max_size=6
)


@given(moves=MOVES, bytes_max=st.sampled_from([0, 2 * ENTRY_BYTES, 3 * ENTRY_BYTES, PLENTY]))
def test_a_prompt_is_what_encoding_everything_anew_would_give(
    moves: list[tuple[Plan, list[Remark], str]], bytes_max: int
) -> None:
    """Whatever was kept or dropped, hidden or summed up, forked, or taken back under the same id."""

    async def check() -> None:
        histories = EncodedHistories(bytes_max=bytes_max)
        session = new_session()
        earlier: list[Snapshot] = [session]
        for plan, remarks, move in moves:
            if move == "fork":
                session = session.forked(mint(SessionId))
            if move == "rewind":
                session = earlier[len(earlier) // 2]
            session = session.with_commit(played(session, plan))
            session = remarked(session, remarks)
            earlier.append(session)
            prompt, turn = await asked_on(session, histories)
            fresh, _ = await asked_on(
                session, EncodedHistories(bytes_max=0), *turn.turn.request.input
            )
            assert b",".join(prompt.messages) == b",".join(fresh.messages)
            assert merged(messages_of(prompt)) == merged(anew(turn))
            assert histories._bytes <= bytes_max
            assert histories._bytes == sum(each.size_bytes for each in histories._kept.values())

    asyncio.run(check())


@given(moves=st.lists(PLANS, min_size=2, max_size=5))
def test_a_summary_made_inside_the_turn_stands_for_the_past_at_once(moves: list[Plan]) -> None:
    async def check() -> None:
        histories = EncodedHistories(bytes_max=PLENTY)
        session = new_session()
        for plan in moves:
            session = session.with_commit(played(session, plan))
            made = summary("So far so good.", covers_to=len(session.items))
            compacted = [ev.Compacted(summary=made)]
            prompt, turn = await asked_on(session, histories, happened=compacted)
            assert merged(messages_of(prompt)) == merged(anew(turn))
            assert words(messages_of(prompt)[0]).endswith("So far so good.]")

    asyncio.run(check())


async def test_a_summary_stands_before_what_it_does_not_cover_wherever_it_was_made() -> None:
    session = with_turn(with_turn(new_session(), user("one")), user("two"))
    made = ev.Compacted(summary=summary("They counted.", covers_to=2))
    turn = after(turn_on(session, user("three")), made, asked(), answered(said()))
    session = ending(session, turn)
    prompt, _ = await asked_on(session, EncodedHistories(bytes_max=PLENTY))
    asked_first = [words(each) for each in messages_of(prompt)][:2]
    assert asked_first == ["[Summary of the conversation so far: They counted.]", "two"]


async def test_a_waiting_call_that_was_hidden_takes_its_result_along() -> None:
    """The result is part of the open turn, its call is not seen any more: no provider would take it."""
    session = waiting_for(new_session(), tell := call("tell", waits_for="client"))
    hidden = noted(session, Visibility(to_model=False), tell.id)
    prompt, turn = await asked_on(hidden, EncodedHistories(bytes_max=PLENTY))
    assert [words(each) for each in messages_of(prompt)] == ["Hello", "One moment.", "Well?"]
    assert merged(messages_of(prompt)) == merged(anew(turn))


async def test_a_waiting_call_that_the_turn_sums_up_comes_along_with_its_result() -> None:
    session = waiting_for(new_session(), call("tell", waits_for="client"))
    made = ev.Compacted(summary=summary(covers_to=len(session.items)))
    prompt, _ = await asked_on(session, EncodedHistories(bytes_max=PLENTY), happened=[made])
    roles = [each.role for each in messages_of(prompt)]
    assert roles == ["user", "assistant", "tool", "user"]


async def test_a_step_whose_calls_wait_is_never_cut_in_two() -> None:
    """A picture that came with one result may not stand between it and the next."""
    histories = EncodedHistories(bytes_max=PLENTY)
    look, tell = call("look"), call("tell", waits_for="client")
    picture = Image(source=Inline(media_type="image/png", data=b"PNG"))
    shown = ev.ToolFinished(
        result=ToolResult(
            id=result(look).id, call=look.id, outcome="ok", content=(picture,), call_id=look.call_id
        )
    )
    turn = after(
        turn_on(new_session()), asked(), answered(look, tell), ev.ToolStarted(call=look.id)
    )
    session = ending(new_session(), after(turn, shown))
    for _ in range(2):
        prompt, played_on = await asked_on(session, histories)
        assert [each.role for each in messages_of(prompt)] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
            "user",
        ]
        assert messages_of(prompt) == anew(played_on)


async def test_the_model_is_told_of_an_interruption() -> None:
    turn = after(turn_on(new_session()), asked(), interrupted("cancelled"))
    prompt, _ = await asked_on(ending(new_session(), turn), EncodedHistories(bytes_max=PLENTY))
    assert "the user stopped it" in words(messages_of(prompt)[1])


# ── what it costs ────────────────────────────────────────────────────────────────────────────


async def test_the_next_turn_encodes_what_is_new_and_nothing_else() -> None:
    histories, dialect = EncodedHistories(bytes_max=PLENTY), Counting()
    session = new_session()
    prompt, turn = await asked_on(session, histories)
    for n in range(3 * PIECES_MAX):
        prompt, turn = await asked_on(session, histories, user(str(n)), dialect=dialect)
        assert dialect.take() <= 3  # the turn before, and this one's question
        assert len(prompt.messages) <= PIECES_MAX + 1
        session = ending(session, after(turn.turn, answered(said())))
    assert merged(messages_of(prompt)) == merged(anew(turn))


async def test_a_chain_of_turns_that_wait_for_the_client_costs_what_is_new_as_well() -> None:
    """Each begins with results and ends with calls: there is no turn's end to cut at."""
    histories, dialect = EncodedHistories(bytes_max=PLENTY), Counting()
    session = new_session()
    prompt, turn = await asked_on(session, histories)
    for _ in range(100):
        prompt, turn = await asked_on(session, histories, dialect=dialect)
        assert dialect.take() <= 8  # the step that waits is encoded twice
        asks = answered(said(), call("tell", waits_for="client"))
        session = ending(session, after(turn.turn, asks))
    assert merged(messages_of(prompt)) == merged(anew(turn))


async def test_only_what_a_model_can_see_makes_the_past_anew() -> None:
    histories, dialect = EncodedHistories(bytes_max=PLENTY), Counting()
    session = new_session()
    for n in range(20):
        session = with_turn(session, user(str(n)))
    await asked_on(session, histories, dialect=dialect)
    assert dialect.take() == 41

    session = noted(session, Titled(title="Twenty questions"))
    await asked_on(session, histories, dialect=dialect)
    assert dialect.take() == 1

    hidden = noted(session, Visibility(to_model=False), item_id(session.items[0]))
    prompt, _ = await asked_on(hidden, histories, dialect=dialect)
    assert dialect.take() == 40
    assert len(messages_of(prompt)) == 40

    short = noted(hidden, Summarized(summary=summary("Much was asked.", covers_to=38)))
    prompt, _ = await asked_on(short, histories, dialect=dialect)
    assert dialect.take() == 4
    assert len(messages_of(prompt)) == 4


async def test_sessions_that_were_not_used_for_long_are_dropped_first() -> None:
    dialect = Counting()
    sessions = [with_turn(new_session(), user(f"I am {n}")) for n in range(4)]
    histories = EncodedHistories(bytes_max=3 * (ENTRY_BYTES + PIECE_BYTES + 200))
    for session in sessions[:3]:
        await asked_on(session, histories, dialect=dialect)
    await asked_on(sessions[0], histories, dialect=dialect)
    await asked_on(sessions[3], histories, dialect=dialect)
    dialect.take()
    costs = []
    for n in (0, 2, 3, 1):
        await asked_on(sessions[n], histories, dialect=dialect)
        costs.append(dialect.take())
    assert costs == [1, 1, 1, 3]


async def test_a_past_that_is_larger_than_all_the_room_drops_nobody() -> None:
    dialect = Counting()
    histories = EncodedHistories(bytes_max=2 * ENTRY_BYTES + 500)
    small = with_turn(new_session(), user("Hi"))
    large = with_turn(new_session(), user("x" * 10_000))
    await asked_on(small, histories, dialect=dialect)
    await asked_on(large, histories, dialect=dialect)
    dialect.take()
    await asked_on(small, histories, dialect=dialect)
    assert dialect.take() == 1


async def test_sessions_without_a_past_leave_nothing_behind() -> None:
    """Requests that name no conversation have a session each."""
    histories = EncodedHistories(bytes_max=PLENTY)
    for _ in range(10):
        await asked_on(new_session(), histories)
    assert repr(histories) == "<EncodedHistories 0 sessions, 0 bytes>"


async def test_another_history_under_the_same_id_is_another_history() -> None:
    histories = EncodedHistories(bytes_max=PLENTY)
    base = with_turn(new_session(), user("one"))
    for text in ("two", "two, but different"):
        session = with_turn(with_turn(base, user(text)), user("three"))
        prompt, turn = await asked_on(session, histories)
        assert merged(messages_of(prompt)) == merged(anew(turn))


# ── blobs ────────────────────────────────────────────────────────────────────────────────────

PNG = b"\x89PNG" + bytes(100_000)


async def photograph(run: ToolRun) -> ToolOutput:
    picture = Image(source=Inline(media_type="image/png", data=PNG))
    return ToolOutput(content=(Text(text="Here."), picture))


async def test_a_picture_in_the_store_reaches_the_model_and_is_not_kept_twice() -> None:
    histories = EncodedHistories(bytes_max=PLENTY)
    camera = Deed("shoot", do=photograph)
    butler = agent(
        "butler", says(calls=[("shoot", "{}")]), "I see.", "Still there.", tools=[camera]
    )
    stage = Stage(butler, histories=histories)
    first = await stage.next("Look")
    then = stage.open("And now?")
    then.blobs = first.blobs
    await stage.go_on(then)
    for nth in (1, 2):
        sent = b"".join(scripted(butler).prompts[nth].messages)
        assert len(sent) > len(PNG)
        assert b'"blob:' not in sent and b"data:image/png;base64," in sent
    assert histories._bytes < 10_000


async def test_a_picture_that_is_gone_is_a_clear_failure() -> None:
    gone = Blob(media_type="image/png", digest="sha256:" + "0" * 64, size_bytes=1)
    seen = UserMessage(id=mint(MessageId), content=(Image(source=gone),))
    with pytest.raises(TurnFailed, match="not in the store any more") as raised:
        await Stage(agent("butler")).play(seen)
    assert raised.value.reason == "blob_missing"


async def test_the_date_is_that_of_the_turns_beginning() -> None:
    """Every step is told the same one, also after midnight and after a crash: the prompt's prefix stays as it is."""
    butler = agent("butler", says("Hello."))
    butler.add_date = True
    turn = await Stage(butler).play("Hi")
    began = datetime.fromtimestamp(turn.turn.request.turn_id.minted_at_ms / 1000, UTC)
    (prompt,) = scripted(butler).prompts
    assert prompt.system == f"Today's date: {began:%Y-%m-%d} (UTC)"


# ── a bound on how much is seen ──


async def test_a_bounded_past_is_whole_turns_and_moves_in_strides() -> None:
    """Turns of two items each, seen up to eight items: between four and eight of them, and the newest."""
    snapshot, histories = new_session(), EncodedHistories(bytes_max=PLENTY)
    seen: list[tuple[str, ...]] = []
    for n in range(12):
        snapshot = with_turn(snapshot, user(f"q{n}"), answer=f"a{n}")
        past = histories.past(snapshot, ChatDialect(), items_max=8)
        data = b"[" + b",".join(each.data for each in past.pieces) + b"]"
        seen.append(
            tuple(words(each) for each in msgspec.json.decode(data, type=list[ChatMessage]))
        )
        fresh = EncodedHistories(bytes_max=PLENTY).past(snapshot, ChatDialect(), items_max=8)
        assert joined(past.pieces) == joined(fresh.pieces), "kept or not, it is the same bytes"
    assert all(each[-1] == f"a{n}" for n, each in enumerate(seen))
    assert all(min(4, 2 * n + 2) <= len(each) <= 8 for n, each in enumerate(seen))
    starts = [each[0] for each in seen]
    assert starts == ["q0"] * 4 + ["q2"] * 2 + ["q4"] * 2 + ["q6"] * 2 + ["q8"] * 2


def test_the_newest_turn_is_seen_however_long_it_is() -> None:
    snapshot = with_turn(new_session(), user("Hi"))
    snapshot = with_turn(snapshot, user("Tell"), *(user(f"{n}") for n in range(9)))
    assert seen_after(snapshot, items_max=2) == 1
    assert seen_after(with_turn(new_session(), user("Hi")), items_max=1) == 0


@given(st.lists(PLANS, min_size=1, max_size=6), st.integers(min_value=1, max_value=12))
def test_no_bound_cuts_a_call_from_its_result(plans: list[Plan], items_max: int) -> None:
    snapshot = new_session()
    for plan in plans:
        snapshot = snapshot.with_commit(played(snapshot, plan))
    prompt = asyncio.run(bounded_prompt(snapshot, items_max))
    assert malformed(messages_of(prompt)) == []


async def bounded_prompt(snapshot: Snapshot, items_max: int) -> Prompt:
    butler = agent("butler", model=Model())
    butler.history_items_max = items_max
    results = [result(each) for each in snapshot.waiting]
    turn = OpenInMemory(turn_on(snapshot, *results, user("Well?")), snapshot)
    await turn.record(ev.StepStarted())
    view = view_for(butler, (), turn, EncodedHistories(bytes_max=PLENTY))
    return await prompt_for(butler, (), turn, view)


def test_a_summary_that_reaches_as_far_stands_for_the_past() -> None:
    snapshot = new_session()
    for n in range(6):
        snapshot = with_turn(snapshot, user(f"q{n}"), answer=f"a{n}")
    assert seen_after(snapshot, items_max=4) == 4
    covering = noted(snapshot, Summarized(summary=summary(covers_to=10)))
    assert seen_after(covering, items_max=4) == 0


# ── a client that has less of the past ──


def texts(
    histories: EncodedHistories,
    snapshot: Snapshot,
    shown: ShownPast,
    dialect: ChatDialect | None = None,
) -> list[str]:
    past = histories.past(snapshot, dialect or ChatDialect(), shown=shown)
    data = b"[" + b",".join(each.data for each in past.pieces) + b"]"
    return [words(each) for each in msgspec.json.decode(data, type=list[ChatMessage])]


def test_a_model_is_shown_of_the_past_what_the_client_has() -> None:
    """Passages stood before each question, and are left out with the next one."""
    histories, dialect, snapshot = EncodedHistories(bytes_max=PLENTY), Counting(), new_session()
    ends: tuple[tuple[int, int], ...] = ()
    for n in range(5):
        ends = (*ends, (len(snapshot.items), 2))
        snapshot = with_turn(snapshot, user(f"Passages.\n\nq{n}"), answer=f"a{n}")
        told = [f"{who}{m}" for m in range(n + 1) for who in "qa"]
        assert texts(histories, snapshot, ShownPast(ends=ends), dialect) == told
    assert dialect.take() == 10, "each turn is encoded once"
    whole = texts(histories, snapshot, WHOLE)
    assert whole[::2] == [f"Passages.\n\nq{n}" for n in range(5)]
    window = ShownPast(since=6, ends=ends[4:])
    assert texts(histories, snapshot, window) == ["Passages.\n\nq3", "a3", "q4", "a4"]
    assert texts(histories, snapshot, ShownPast(since=10)) == []


def test_a_summary_of_more_than_a_client_has_left_out_is_shown_to_the_model() -> None:
    snapshot, histories = new_session(), EncodedHistories(bytes_max=PLENTY)
    for n in range(4):
        snapshot = with_turn(snapshot, user(f"q{n}"), answer=f"a{n}")
    snapshot = noted(snapshot, Summarized(summary=summary("All.", covers_to=4)))
    assert texts(histories, snapshot, ShownPast(since=4)) == ["q2", "a2", "q3", "a3"]
    first, *others = texts(histories, snapshot, ShownPast(since=2))
    assert first.endswith("All.]") and others == ["q2", "a2", "q3", "a3"]


def test_a_window_holds_the_step_whose_calls_wait() -> None:
    tell = call(waits_for="client")
    snapshot = waiting_for(with_turn(new_session(), user("q0"), answer="a0"), tell)
    past = EncodedHistories(bytes_max=0).past(snapshot, ChatDialect(), shown=ShownPast(since=2))
    assert [each.id for each in past.open_step][-1] == tell.id
    assert len(past.pieces) == 1
