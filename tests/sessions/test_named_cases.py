"""Bad moments with a name: each of them has cost somebody a conversation once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import get_args

import msgspec
import pytest

from holdfast import limits
from holdfast.core.history.conversation import Visibility
from holdfast.core.items import AssistantMessage, item_id
from holdfast.core.policy import Policy
from holdfast.core.turns import events as ev
from holdfast.errors import SessionGone, StoreUnavailable
from holdfast.ids import SessionKey
from holdfast.sessions.operations import StillRunning
from holdfast.sessions.session_requests import Ending, OnBusy
from holdfast.store.outcomes import Begin
from holdfast.store.rows import SignalRow
from tests.simulation.clients import TENANT, as_client_sees
from tests.simulation.simulation import Home
from tests.simulation.stage import KEY, Hand, Stage, act_out, on_stage, outcomes, words
from tests.simulation.world import Node

TTL_S = limits.lease_ttl_s


def hang(seconds: float) -> Callable[[Hand], Awaitable[None]]:
    """A player whose model takes this long to say a word."""

    async def part(hand: Hand) -> None:
        await asyncio.sleep(seconds)
        await hand.go_on()

    return part


# ── crashes ──────────────────────────────────────────────────────────────────────────────────


@on_stage
async def test_a_follow_up_after_the_crash_of_a_keyed_turn_waits_for_it_and_it_commits_first(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)  # so that they may judge
    await stage.playing(one, "Book it", hang(60), key="k1")
    stage.world.bury(one)

    follow_up = await stage.send(two, "And a hotel")

    assert follow_up.ok
    assert await stage.said() == ["Book it", "re: Book it", "And a hotel", "re: And a hotel"]


@on_stage
async def test_three_calls_at_the_crash_end_as_the_policy_says(stage: Stage) -> None:
    """One has its result, one had started, one had not: only the second is in doubt."""
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    stage.parts["Go"] = three_calls_then_hang
    stage.send(one, "Go", name=SessionKey("kept"))
    stage.send(one, "Go", name=SessionKey("resumed"), key="k1")
    await stage.until(lambda: len(stage.done) == 4)
    stage.world.bury(one)
    await stage.sleep(TTL_S + limits.sweep_s + 1)

    kept = await stage.snapshot(SessionKey("kept"))
    assert outcomes(kept.items) == [("a", "ok"), ("b", "unknown"), ("c", "not_run")]
    resumed = await stage.snapshot(SessionKey("resumed"))
    assert outcomes(resumed.items) == [("a", "ok"), ("b", "unknown"), ("c", "ok")]
    assert sorted(stage.done) == ["a", "a", "b", "b", "c"]
    assert words(resumed.items) == ["Go", "re: Go"]
    assert two in stage.world.nodes


async def three_calls_then_hang(hand: Hand) -> None:
    a, b, _ = await hand.call("a", "b", "c")
    await hand.start(a)
    await hand.finish(a)
    await hand.start(b)
    await asyncio.sleep(1000)


@on_stage
async def test_the_turns_of_a_dead_node_are_taken_over_side_by_side(stage: Stage) -> None:
    """Each takes several questions to the store: one after the other, the last of many would wait for all."""
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    names = [SessionKey(f"key-{n}") for n in range(24)]
    stage.parts["Book it"] = hang(60)
    for name in names:
        stage.send(one, "Book it", name=name, key=f"for-{name}")
    await stage.until(lambda: len(stage.played) == len(names))
    journal = two.store.as_store().journal

    async def slowly(*args: object, **kwargs: object) -> object:
        await asyncio.sleep(1)
        return await journal(*args, **kwargs)  # type: ignore[arg-type]

    two.store.override("journal", slowly)
    stage.world.bury(one)
    await stage.sleep(TTL_S + 2 * limits.sweep_s + 4)

    assert len(stage.played) == 2 * len(names), "all of them are played again"


@on_stage
async def test_a_store_that_is_away_for_longer_than_a_lease_costs_no_turn(stage: Stage) -> None:
    """Everybody looks dead afterwards; nobody may take that for a reason to end anybody's turn."""
    nodes = [await stage.boot() for _ in range(3)]
    await stage.sleep(TTL_S + 1)
    stage.parts["Soon"] = hang(2)  # ends while the store is away
    stage.parts["Later"] = hang(TTL_S + 10)
    stage.parts["Use a tool"] = tool_after(TTL_S + 2)
    sent = [
        stage.send(node, text, name=SessionKey(f"{text.replace(' ', '-')}-{n}"))
        for n, node in enumerate(nodes)
        for text in ("Soon", "Later", "Use a tool")
    ]
    await stage.until(lambda: len(stage.played) == len(sent))

    await stage.world.outage(for_s=TTL_S + 5)

    endings = [await each for each in sent]
    assert [ending.by for ending in endings] == ["completed"] * len(sent)
    assert len(stage.played) == len(sent), "nothing was taken over and played again"


def tool_after(seconds: float) -> Callable[[Hand], Awaitable[None]]:
    async def part(hand: Hand) -> None:
        await asyncio.sleep(seconds)
        await hand.call("a")
        await hand.go_on()

    return part


@on_stage
async def test_a_node_that_was_stopped_for_too_long_lets_go_of_what_it_has_lost(
    stage: Stage,
) -> None:
    """Its player waits for a model and records nothing, so no fence tells it. Its lane must not wait with it."""
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    await stage.playing(one, "Hello", hang(500))

    await stage.world.pause(one, for_s=2 * TTL_S)
    await stage.sleep(limits.sweep_s + 1)
    again = await stage.send(one, "Anybody?", wait_s=5)

    assert again.ok
    assert [turn.ended_by for turn in await stage.turns()] == ["crash", "completed"]
    assert two in stage.world.nodes


@on_stage
async def test_a_turn_that_two_of_a_node_want_to_take_over_is_taken_once(stage: Stage) -> None:
    """Both are this node, so the store would let each of them take it from the other."""
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    await stage.playing(one, "Book it", hang(60), key="k1")
    stage.world.bury(one)
    await stage.sleep(TTL_S + 0.1)
    stale = (await stage.turns())[0]
    recovery = two.sessions._recovery
    again = [
        await two.run(lambda: recovery.recover(TENANT, stale.session_id, stale.turn_id))
        for _ in range(3)
    ]
    sent = [stage.send(two, f"Next {n}") for n in range(3)]
    sweeps = [stage.loop.create_task(two.run(recovery.sweep)) for _ in range(3)]

    for each in sent:
        assert (await each).ok
    await asyncio.gather(*sweeps)

    assert again.count(True) <= 1
    assert stage.played.count("Book it") == 2
    assert (await stage.turns())[0].ended_by == "completed"


@on_stage
async def test_a_sweep_never_takes_a_turn_that_began_while_it_looked(stage: Stage) -> None:
    """It names the turn that it saw. By then that session may have another one: our own."""
    one = await stage.boot()
    await stage.sleep(TTL_S + 1)
    assert (await stage.send(one, "Hello")).ok
    stale = (await stage.turns())[0]
    sent = await stage.playing(one, "Long", hang(5))

    recover = one.sessions._recovery.recover
    taken = await one.run(lambda: recover(TENANT, stale.session_id, stale.turn_id))

    assert not taken
    assert (await sent).ok
    assert stage.played == ["Hello", "Long"]


@on_stage
async def test_a_node_with_many_turns_of_its_own_still_sees_those_of_the_dead(
    stage: Stage,
) -> None:
    busy, one = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    stage.parts["Long"] = hang(4 * TTL_S)
    many = [stage.send(busy, "Long", name=SessionKey(f"mine-{n}")) for n in range(120)]
    await stage.until(lambda: len(stage.played) == 120)
    stage.parts["Orphan"] = hang(500)
    stage.send(one, "Orphan")
    await stage.until(lambda: len(stage.played) == 121)
    stage.world.bury(one)

    await stage.sleep(TTL_S + limits.sweep_s + 1)

    assert (await stage.turns())[0].ended_by == "crash"
    assert all([(await each).ok for each in many])


@on_stage
async def test_a_turn_that_was_cancelled_while_its_node_was_dead_is_not_played_again(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    stage.parts["Book it"] = hang(60)
    watch = await stage.submit(one, "Book it", key="k1")
    await stage.until(lambda: bool(stage.played))
    stage.world.bury(one)
    await stage.store.signal(TENANT, watch.admission.turn_id, kind="cancel")
    await stage.sleep(TTL_S + limits.sweep_s + 1)

    assert two in stage.world.nodes
    assert (await stage.turns())[0].ended_by == "cancelled"
    assert stage.played == ["Book it"]


@on_stage
async def test_a_deadline_that_comes_while_the_end_is_decided_still_counts_if_the_turn_goes_on(
    stage: Stage,
) -> None:
    """Somebody has said something before the commit, so the turn has to go on; and its time is up."""
    node = await stage.boot()
    commit = node.store.as_store().commit

    async def slowly(*args: object, **kwargs: object) -> object:
        await asyncio.sleep(2)
        return await commit(*args, **kwargs)  # type: ignore[arg-type]

    async def once_then_hang(hand: Hand) -> None:
        if len(stage.played) > 1:
            await asyncio.sleep(1000)
        await hand.go_on()

    node.store.override("commit", slowly)
    sent = await stage.playing(node, "Hello", once_then_hang, deadline_s=1)
    await stage.sleep(0.5)
    stage.send(node, "One more thing", on_busy="steer")
    await stage.sleep(10)

    assert sent.done()
    assert sent.result().by == "deadline"


# ── retries ──────────────────────────────────────────────────────────────────────────────────


@on_stage
async def test_a_keyed_retry_is_answered_again_whatever_else_it_says(stage: Stage) -> None:
    """Busy policy, If-Match and what is new are for new requests; this one is known."""
    one, two = await stage.boot(), await stage.boot()
    first = await stage.send(one, "Hello", key="k1", if_match=0)
    past = as_client_sees(await stage.snapshot(), whole=True)
    assert (await stage.send(one, "And now?")).ok

    for node in (one, two):
        again = [
            await stage.send(node, "Hello", key="k1", on_busy="interrupt"),
            await stage.send(node, "Hello", key="k1", if_match=0),
            await stage.send(node, "Hello", key="k1", past=past),
        ]
        assert again == [first, first, first]
    assert len(await stage.turns()) == 2


@on_stage
async def test_a_keyed_retry_does_not_interrupt_its_own_first_attempt(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    first = await stage.playing(one, "Hello", hang(5), key="k1", on_busy="interrupt")

    again = stage.send(two, "Hello", key="k1", on_busy="interrupt")

    assert (await again).ok
    assert await first == await again
    assert stage.played == ["Hello"]


@on_stage
async def test_continue_sent_twice_with_a_503_in_between_makes_two_turns(stage: Stage) -> None:
    """An SDK's retry count means that something was tried before; not that this was."""
    node = await stage.boot()
    assert (await stage.send(node, "Hello")).ok
    assert (await stage.send(node, "continue", body="continue")).ok
    node.store.partitioned = True
    with pytest.raises(StoreUnavailable):
        await stage.send(node, "continue", body="continue")
    node.store.partitioned = False

    again = await stage.send(node, "continue", body="continue", attempt=1)

    assert again.version == 3
    assert (await stage.said()).count("continue") == 2


# ── steering ─────────────────────────────────────────────────────────────────────────────────


@on_stage
async def test_words_that_are_brought_twice_are_heard_once(stage: Stage) -> None:
    """A poll that was under way when they were heard brings them again, as if they were new."""
    node = await stage.boot()

    async def listening(hand: Hand) -> None:
        live = await hand.wait_steer()
        brought: list[SignalRow] = list(live._steers.values())
        hearing = asyncio.ensure_future(hand.open.take_steering())
        await asyncio.sleep(0)
        for row in brought:
            node.sessions._owner.deliver(row)
        await hearing
        await hand.go_on()

    running = await stage.playing(node, "Long", listening)
    steered = await stage.send(node, "Faster", on_busy="steer")

    assert steered == await running
    assert await stage.said() == ["Long", "Faster", "re: Faster"]


@on_stage
async def test_words_that_were_heard_at_the_last_moment_are_not_said_again(stage: Stage) -> None:
    """The turn is stopped between hearing them and writing so; they are kept with it, and only there."""
    node = await stage.boot()

    async def stopped_while_listening(hand: Hand) -> None:
        (call,) = await hand.call("a")
        await hand.start(call)
        live = await hand.wait_steer()
        node.store.override("append", slowly)
        await hand.finish(call)
        await asyncio.sleep(0.1)  # the result is being written while they are heard
        live.interrupt("deadline")
        await hand.open.take_steering()

    append = node.store.as_store().append

    async def slowly(*args: object, **kwargs: object) -> None:
        await asyncio.sleep(1)
        await append(*args, **kwargs)  # type: ignore[arg-type]

    running = await stage.playing(node, "Long", stopped_while_listening)
    steered = await stage.send(node, "Faster", on_busy="steer")

    assert (await running).by == "deadline"
    assert steered == await running
    assert (await stage.said()).count("Faster") == 1


@on_stage
async def test_who_has_spoken_to_a_turn_waits_for_it_while_the_store_is_away(stage: Stage) -> None:
    """It was said: whoever were told to say it again would be heard twice."""
    node = await stage.boot()

    async def listening(hand: Hand) -> None:
        await hand.wait_steer()
        await stage.world.outage(for_s=2)
        await hand.open.take_steering()
        await hand.go_on()

    running = await stage.playing(node, "Long", listening)
    steered = await stage.send(node, "Faster", on_busy="steer")

    assert steered == await running
    assert await stage.said() == ["Long", "Faster", "re: Faster"]


@on_stage
async def test_words_whose_fate_cannot_be_read_at_once_are_not_said_again(stage: Stage) -> None:
    """The turn that has heard them has ended by the time that the store can be asked about them."""
    node = await stage.boot()

    async def listening(hand: Hand) -> None:
        await hand.wait_steer()
        node.store.override("find_signal", rarely)
        await hand.open.take_steering()
        await hand.go_on()

    find_signal = node.store.as_store().find_signal
    lost = iter(range(8))

    async def rarely(*args: object, **kwargs: object) -> object:
        if not running.done() or next(lost, None) is not None:
            raise StoreUnavailable("away")
        return await find_signal(*args, **kwargs)  # type: ignore[arg-type]

    running = await stage.playing(node, "Long", listening)
    steered = await stage.send(node, "Faster", on_busy="steer")

    assert steered == await running
    assert await stage.said() == ["Long", "Faster", "re: Faster"]


@on_stage
async def test_words_that_are_said_to_a_turn_without_anybody_who_would_listen_begin_the_next(
    stage: Stage,
) -> None:
    """Items are being added, and nobody is asked: an answer to these words would be no answer."""
    one, two = await stage.boot(), await stage.boot()
    goes_on = asyncio.Event()

    async def add(hand: Hand) -> None:
        await goes_on.wait()
        await hand.open.record(ev.StepStarted(), ev.Answered(items=()))

    stage.parts["For the record"] = add
    adding = msgspec.structs.replace(stage.ask("For the record"), verbatim=True)
    watch = await one.run(lambda: one.sessions.submit(adding))
    steered = [stage.send(node, "Faster", on_busy="steer") for node in (one, two)]
    while len(await stage.store.signals(one.id)) < 2:
        await stage.sleep(0.1)
    goes_on.set()

    assert (await watch.ended()).ok
    for each in steered:
        assert (await each).ok
    assert await stage.said() == ["For the record", *2 * ["Faster", "re: Faster"]]


# ── deleting ─────────────────────────────────────────────────────────────────────────────────


@on_stage
async def test_whoever_waits_for_a_session_that_is_deleted_is_told_so_and_starts_nothing(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    assert (await stage.send(one, "Hello")).ok
    session_id = await stage.id_of()
    running = await stage.playing(one, "Long", hang(30))
    waiting = [stage.send(node, "Me too") for node in (one, two, one, two)]
    await stage.sleep(1)

    await two.run(lambda: two.sessions.operations.delete(TENANT, session_id))

    assert (await running).by == "deleted"
    for each in waiting:
        with pytest.raises(SessionGone):
            await each
    assert "Me too" not in stage.played
    assert await stage.store.resolve(TENANT, KEY) is None


@pytest.mark.parametrize("key", ["", "k1"], ids=["no key", "a key"])
@pytest.mark.parametrize("on_busy", get_args(OnBusy))
def test_a_message_for_a_session_that_is_deleted_is_not_for_the_next_session_of_that_name(
    on_busy: OnBusy, key: str
) -> None:
    """It came in time, stands behind a request that the store is slow to answer, and finds another session busy then."""

    async def scenario(stage: Stage) -> None:
        node = await stage.boot()
        _, running = await stage.answering(node, "Long")
        session_id = await stage.id_of()
        queued, looks = [], []
        for text in ("Later", "Later still"):
            looks.append(stage.delay(node, "resolve"))
            queued.append(stage.send(node, text, queues=True))
            await stage.sleep(1)
        late = stage.send(node, "Me too", on_busy=on_busy, key=key)
        await stage.sleep(1)

        await node.run(lambda: node.sessions.operations.delete(TENANT, session_id))
        assert (await running).by == "deleted"
        looks[0].set()
        await stage.sleep(1)
        gate, fresh = await stage.answering(node, "Anew")
        looks[1].set()
        await stage.sleep(1)
        gate.open.set()

        for each in (*queued, late):
            with pytest.raises(SessionGone):
                await each
        assert (await fresh).ok
        assert await stage.said() == ["Anew", "re: Anew"]

    act_out(scenario, "memory")


@on_stage
async def test_a_message_that_a_reset_has_moved_goes_with_the_session_that_it_has_moved_to(
    stage: Stage,
) -> None:
    node = await stage.boot()
    gate, running = await stage.answering(node, "Long")
    let_go = stage.delay(node, "resolve")
    stage.send(node, "Later", queues=True)
    await stage.sleep(1)
    late = stage.send(node, "Me too")
    await stage.sleep(1)
    await node.run(lambda: node.sessions.operations.reset(TENANT, KEY))
    await stage.answering(node, "Anew")
    let_go.set()
    await stage.sleep(1)

    session_id = await stage.id_of()
    await node.run(lambda: node.sessions.operations.delete(TENANT, session_id))

    with pytest.raises(SessionGone):
        await late
    gate.open.set()
    assert (await running).ok
    assert await stage.store.resolve(TENANT, KEY) is None


@on_stage
async def test_a_retry_that_came_before_its_session_was_deleted_starts_nothing(
    stage: Stage,
) -> None:
    """It stands behind its own first attempt, which is told so first."""
    node = await stage.boot()
    await stage.answering(node, "Long")
    session_id = await stage.id_of()
    attempts = [stage.send(node, "Me too", key="k1") for _ in range(3)]
    await stage.sleep(1)

    await node.run(lambda: node.sessions.operations.delete(TENANT, session_id))

    for each in attempts:
        with pytest.raises(SessionGone):
            await each
    assert await stage.store.resolve(TENANT, KEY) is None


@on_stage
async def test_a_key_whose_session_was_deleted_is_free_on_every_node(stage: Stage) -> None:
    """Also on those that remember what it meant."""
    one, two = await stage.boot(), await stage.boot()
    for node in (one, two):
        assert (await stage.send(node, "Hello")).ok
    old = await stage.id_of()
    await two.run(lambda: two.sessions.operations.delete(TENANT, old))

    for node in (one, two):
        assert (await stage.send(node, "Hello again")).ok

    assert await stage.id_of() != old
    assert (await stage.said()).count("Hello again") == 2
    assert "Hello" not in await stage.said()


@on_stage
async def test_watchers_of_a_turn_that_is_deleted_see_what_its_journal_holds(
    stage: Stage,
) -> None:
    node = await stage.boot()
    assert (await stage.send(node, "Hello")).ok
    stage.parts["Long"] = hang(30)
    watch = await stage.submit(node, "Long", key="k1")

    async def see() -> list[int]:
        return [record.n async for record in watch.events()]

    seeing = stage.loop.create_task(node.run(see))
    await stage.until(lambda: stage.played[-1] == "Long")
    session_id = await stage.id_of()
    await node.run(lambda: node.sessions.operations.delete(TENANT, session_id))

    assert await seeing == [0]
    assert (await watch.ended()).by == "deleted"


@on_stage
async def test_cancelling_a_turn_of_a_session_that_is_being_deleted_says_what_became_of_it(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    assert (await stage.send(one, "Hello")).ok
    session_id = await stage.id_of()
    stage.parts["Long"] = hang(500)
    watch = await stage.submit(one, "Long")
    await stage.until(lambda: stage.played[-1] == "Long")
    stage.world.bury(one)
    await stage.sleep(TTL_S - 1)

    cancelling = stage.loop.create_task(
        two.run(lambda: two.sessions.operations.cancel(TENANT, watch.admission.turn_id))
    )
    await stage.sleep(limits.cancel_grace_s - 0.1)
    await stage.store.remove(TENANT, session_id)

    ending = await cancelling
    assert isinstance(ending, Ending | StillRunning)


# ── notes ────────────────────────────────────────────────────────────────────────────────────


@on_stage
async def test_what_was_hidden_on_one_node_is_hidden_from_the_next_turn_on_another(
    stage: Stage,
) -> None:
    """The one that plays the next turn remembers the session as it was, at the same version."""
    one, two = await stage.boot(), await stage.boot()
    assert (await stage.send(one, "Hello")).ok
    snapshot = await stage.snapshot()
    hidden = item_id(snapshot.items[0])
    assert hidden is not None
    await two.run(
        lambda: two.sessions.operations.annotate(
            TENANT, snapshot.session_id, [(hidden, Visibility(to_model=False))]
        )
    )
    seen: list[frozenset[object]] = []

    async def look(hand: Hand) -> None:
        seen.append(frozenset(hand.open.snapshot.notes.hidden_from_model))
        await hand.go_on()

    stage.parts["And now?"] = look
    assert (await stage.send(one, "And now?")).ok

    assert seen == [frozenset({hidden})]


# ── many at once ─────────────────────────────────────────────────────────────────────────────


@on_stage
async def test_concurrent_first_requests_converge_on_one_session(stage: Stage) -> None:
    nodes = [await stage.boot() for _ in range(3)]
    sent = [stage.send(node, f"Hello {n}") for n, node in enumerate(nodes * 3)]

    endings = [await each for each in sent]

    assert all(ending.ok for ending in endings)
    assert len({ending.session_id for ending in endings}) == 1
    assert sorted(ending.version or 0 for ending in endings) == list(range(1, 10))
    assert len(await stage.said()) == 18


@on_stage
async def test_requests_of_one_process_begin_one_at_a_time_in_the_order_in_which_they_came(
    stage: Stage,
) -> None:
    """Also if the later ones would be quicker."""
    node = await stage.boot()
    assert (await stage.send(node, "Hello")).ok
    begin = node.store.as_store().begin
    beginning: list[int] = []
    pauses_s = [1.0, 0.8, 0.6, 0.4, 0.2, 0.0]

    async def slowly(ask: Begin) -> object:
        beginning.append(1)
        assert sum(beginning) == 1, "two of one lane are beginning at once"
        await asyncio.sleep(pauses_s.pop(0))
        beginning.append(-1)
        return await begin(ask)

    node.store.override("begin", slowly)
    sent = [stage.send(node, f"Next {n}") for n in range(6)]

    assert [(await each).version for each in sent] == [2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("home", ["memory", "sqlite"])
def test_a_cache_of_no_bytes_changes_nothing(home: Home) -> None:
    """A conversation over two nodes, with a full resend, a cancel and a reset in it."""
    told: list[list[object]] = []

    async def conversation(stage: Stage) -> None:
        one, two = await stage.boot(), await stage.boot()
        endings: list[Ending] = [await stage.send(one, "Hello")]
        past = as_client_sees(await stage.snapshot(), whole=True)
        endings.append(await stage.send(two, "And now?", past=past))
        endings.append(await stage.send(one, "Then?", if_match=2))
        running = await stage.playing(two, "Long", hang(30))
        endings.append(await stage.send(one, "Stop it", on_busy="interrupt"))
        endings.append(await running)
        before = await stage.said()
        await one.run(lambda: one.sessions.operations.reset(TENANT, KEY))
        endings.append(await stage.send(two, "Anew"))
        told.append([(each.by, each.kept, each.version) for each in endings])
        told[-1] += [before, await stage.said(), stage.played]

    for cache_bytes in (1 << 20, 0):
        act_out(conversation, home, cache_bytes=cache_bytes)
    assert told[0] == told[1]


# ── coming and going ─────────────────────────────────────────────────────────────────────────


@on_stage
async def test_a_node_that_is_shutting_down_begins_nothing_and_does_not_come_back_to_life(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    await stage.sleep(TTL_S + 1)
    running = await stage.playing(one, "Long", hang(3))
    waiting = stage.send(one, "Next")

    closing = stage.loop.create_task(one.run(lambda: one.sessions.close(grace_s=10)))
    await stage.sleep(1)
    with pytest.raises(StoreUnavailable, match="shutting down"):
        await stage.send(one, "New", name=SessionKey("another"))

    assert (await running).ok
    with pytest.raises(StoreUnavailable, match="shutting down"):
        await waiting
    await closing
    assert (await stage.send(two, "Next")).ok
    assert await stage.said() == ["Long", "re: Long", "Next", "re: Next"]


@on_stage
async def test_a_request_that_came_before_its_node_left_does_not_bring_the_node_back(
    stage: Stage,
) -> None:
    """It asks whether there is room, and the store takes its time over the answer."""
    node = await stage.boot()
    assert (await stage.send(node, "Hello")).ok
    node.sessions._owner.others_wait = True
    answer = stage.delay(node, "orphans")
    sent = stage.send(node, "Later", queues=True, if_match=1)
    await stage.sleep(0.5)
    await node.run(lambda: node.sessions.close(grace_s=0))
    asked = dict(node.store.calls)

    answer.set()

    with pytest.raises(StoreUnavailable, match="shutting down"):
        await sent
    assert node.store.calls == {
        **asked,
        "orphans": asked["orphans"] + 1,
        "queued": asked["queued"] + 1,
    }


@on_stage
async def test_a_turn_that_begins_in_the_very_moment_of_the_end_is_handed_over(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    stage.parts["Hello"] = hang(60)
    begin = one.store.as_store().begin

    async def slowly(ask: object) -> object:
        await asyncio.sleep(1)
        return await begin(ask)  # type: ignore[arg-type]

    one.store.override("begin", slowly)
    sent = stage.send(one, "Hello", key="k1")
    await stage.sleep(0.5)

    await one.run(lambda: one.sessions.close(grace_s=0))

    assert (await sent).ok
    assert stage.played == ["Hello"], "the other node has played it, at once"
    assert two in stage.world.nodes


@on_stage
async def test_a_node_that_could_not_start_leaves_no_heart_beating(stage: Stage) -> None:
    node = Node(stage.world, "half", stage.play)

    async def away(**asked: object) -> None:
        raise StoreUnavailable("it has just gone")

    node.store.override("orphans", away)
    with pytest.raises(StoreUnavailable):
        await stage.loop.start(node.place, node.open())
    renewed = node.store.calls["renew"]
    await stage.sleep(2 * TTL_S)

    assert node.store.calls["renew"] == renewed


@on_stage
async def test_a_node_can_leave_while_the_store_is_away(stage: Stage) -> None:
    node = await stage.boot()
    assert (await stage.send(node, "Hello")).ok
    node.store.partitioned = True
    await node.run(lambda: node.sessions.close(grace_s=1))


@on_stage
async def test_a_watcher_elsewhere_sits_out_an_outage(stage: Stage) -> None:
    one, two = await stage.boot(), await stage.boot()
    stage.parts["Long"] = hang(5)
    watch = await stage.submit(one, "Long", key="k1")

    async def see() -> list[int]:
        other = await two.sessions.watch(TENANT, watch.admission.turn_id)
        return [record.n async for record in other.events()]

    seeing = stage.loop.create_task(two.run(see))
    await stage.sleep(1)
    two.store.partitioned = True
    await stage.sleep(10)
    two.store.partitioned = False

    rows = await stage.store.journal(TENANT, watch.admission.turn_id)
    assert len(await seeing) == sum(row.records.count(b"\n") + 1 for row in rows)


# ── what people see ──────────────────────────────────────────────────────────────────────────


@on_stage
async def test_a_turn_that_is_kept_by_policy_is_answered_the_same_everywhere(
    stage: Stage,
) -> None:
    """Retries go on with it, on whichever node, as often as they may; then it is told as it is stored."""
    one, two = await stage.boot(), await stage.boot()
    keep = Policy(deadline="keep")
    stage.parts["Long"] = hang(60)
    ends = [
        await stage.send(node, "Long", key="k1", policy=keep, deadline_s=2)
        for node in (one, two, one, two, one, two)
    ]

    assert {(each.by, each.kept) for each in ends} == {("deadline", True)}
    assert len({each.turn_id for each in ends}) == 1 + limits.continuations_max
    assert ends[-3] == ends[-2] == ends[-1]
    assert not any(isinstance(each, AssistantMessage) for each in (await stage.snapshot()).items)


# ── busy elsewhere ───────────────────────────────────────────────────────────────────────────


@on_stage
async def test_an_interrupt_reaches_a_turn_elsewhere_that_somebody_before_it_waits_for(
    stage: Stage,
) -> None:
    one, two = await stage.boot(), await stage.boot()
    assert (await stage.send(two, "Hello")).ok  # so that it knows where to queue them
    stage.parts["Long"] = hang(500)
    long = stage.send(one, "Long")
    await stage.until(lambda: stage.played == ["Hello", "Long"])
    patient = stage.send(two, "Patient")
    await stage.sleep(1)
    urgent = stage.send(two, "Urgent", on_busy="interrupt")

    assert (await urgent).ok
    assert (await patient).ok
    assert stage.loop.time() < 30, "nobody has waited for the turn to end by itself"
    assert (await long).by == "cancelled"


# ── players ──────────────────────────────────────────────────────────────────────────────────


@on_stage
async def test_a_player_that_is_cancelled_by_its_own_hand_has_not_succeeded(stage: Stage) -> None:
    """Nobody has told the turn to stop, and the task that it runs in goes on."""
    node = await stage.boot()

    async def trip_over_oneself(hand: Hand) -> None:
        await hand.call("a")
        raise asyncio.CancelledError

    stage.parts["Hello"] = trip_over_oneself
    ending = await stage.send(node, "Hello")
    assert (ending.kept, ending.by) == (False, "model_error")
    assert (await stage.send(node, "Again")).ok


@on_stage
async def test_a_player_that_is_told_to_stop_several_times_ends_its_turn_once(stage: Stage) -> None:
    """Each of them is for the player: the last transaction is not to be disturbed by what it did not hear."""
    node = await stage.boot()
    told: list[str] = []

    async def hard_of_hearing(hand: Hand) -> None:
        for _ in range(2):
            try:
                await asyncio.sleep(500)
            except asyncio.CancelledError:
                told.append("stop")

    sent = await stage.playing(node, "Hello", hard_of_hearing)
    (live,) = node.sessions._owner.live.values()
    stage.loop.call_in(node.place, 0.1, live.interrupt, "cancelled")
    stage.loop.call_in(node.place, 0.2, live._stop_playing)

    ending = await sent
    assert (ending.kept, ending.by, told) == (True, "cancelled", ["stop", "stop"])
    assert (await stage.send(node, "Again")).ok
