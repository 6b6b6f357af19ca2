"""The scenes: the steps of each on a real server, and what must be true afterwards.

Each scene reads a conversation before and after, so that people can compare for themselves, and computes its claims
from these two readings and from the server's answers. A claim that does not hold makes the tour fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from holdfast.cli.tour.demo_server import ServerHost
from holdfast.cli.tour.http_client import PATIENCE_S, HistoryLine, HttpClient
from holdfast.core.codec import Value
from holdfast.printable import on_one_line


class SceneClaim(Value):
    """A sentence, and whether it holds."""

    says: str
    holds: bool


class ConversationState(Value):
    """The items of a conversation at one moment, as lines."""

    title: str
    lines: tuple[str, ...]


class SceneResult(Value):
    """The conversation before and after a scene, and the scene's claims."""

    before: ConversationState
    after: ConversationState
    claims: tuple[SceneClaim, ...]


Tell: TypeAlias = Callable[[str], None]
"""Prints the step that a scene is about to do."""

Play: TypeAlias = Callable[[ServerHost, Tell], SceneResult]


class Scene(Value):
    title: str
    elsewhere: str
    """What happens in such a case with other servers."""
    play: Play


# ── a failure leaves no trace ────────────────────────────────────────────────────────────────


def failure(host: ServerHost, tell: Tell) -> SceneResult:
    client, name = HttpClient(host.url), "a-failed-turn"
    tell("“My name is Ada.”")
    client.say(name, "My name is Ada.")
    before = client.history(name)
    tell("“please fail”, and the model does")
    failed = client.say(name, "please fail")
    after = client.history(name)
    last = client.turns(name)[-1]
    return SceneResult(
        before=_reading("before the failure", before),
        after=_reading("after it", after),
        claims=(
            SceneClaim(says=f"the client was told: {failed.status}", holds=failed.status >= 500),
            SceneClaim(says="the conversation is the same, id for id", holds=before == after),
            SceneClaim(
                says=f"the attempt is on record: {last.state}, {last.detail}",
                holds=last.state == "discarded" and "failed" in last.detail,
            ),
        ),
    )


def retry(host: ServerHost, tell: Tell) -> SceneResult:
    client, name = HttpClient(host.url), "a-retry"
    client.say(name, "My name is Ada.")
    tell(
        "“What is my name? But break off first.” fails half-way, after the client has seen some of it"
    )
    with client.listening(name, "What is my name? But break off first.") as stream:
        seen = "".join(stream.pieces())
    before = client.history(name)
    tell("“What is my name?”, asked again")
    answer = client.say(name, "What is my name?")
    after = client.history(name)
    said = [line.text for line in after if line.type == "user"]
    return SceneResult(
        before=_reading("after the failure", before),
        after=_reading("after the retry", after),
        claims=(
            SceneClaim(says=f"the client had seen “{on_one_line(seen, 60)}”", holds=bool(seen)),
            SceneClaim(
                says="nothing of it is in the conversation",
                holds=all(seen.strip() not in line.text for line in after),
            ),
            SceneClaim(
                says="the question is there once",
                holds=said == ["My name is Ada.", "What is my name?"],
            ),
            SceneClaim(says=f"and is answered: “{answer.text}”", holds="Ada" in answer.text),
        ),
    )


# ── two first requests make one session ──────────────────────────────────────────────────────


def together(host: ServerHost, tell: Tell) -> SceneResult:
    client, name = HttpClient(host.url), "two-first-requests"
    before = client.history(name)
    tell("“My name is Ada.” and “My name is Bo.”, at the same moment, to a new conversation")
    with ThreadPoolExecutor(2) as both:
        replies = list(both.map(lambda who: client.say(name, f"My name is {who}."), ("Ada", "Bo")))
    after = client.history(name)
    said = {line.text for line in after if line.type == "user"}
    return SceneResult(
        before=_reading("before", before),
        after=_reading("after", after),
        claims=(
            SceneClaim(
                says=f"both were given one session: {replies[0].session}",
                holds=len({reply.session for reply in replies}) == 1,
            ),
            SceneClaim(
                says="both turns are in it, one after the other",
                holds=said == {"My name is Ada.", "My name is Bo."}
                and [line.type for line in after] == ["user", "assistant"] * 2,
            ),
        ),
    )


# ── a stop keeps what was said, and leaves no orphan ─────────────────────────────────────────


def stop(host: ServerHost, tell: Tell) -> SceneResult:
    client, name = HttpClient(host.url), "a-stop"
    tell("“Tell me a long story.”, and stop after a dozen words")
    with client.listening(name, "Tell me a long story.") as stream:
        heard = stream.hear(12)
        client.cancel(stream.turn)
    before = client.history(name)
    tell("“call send_by_ship …”, a tool that takes half a minute, and stop while it runs")
    with client.listening(name, 'call send_by_ship with {"to": "Oslo"}') as stream:
        _wait_until(lambda: "Oslo" in _letters(host))
        client.cancel(stream.turn)
    after = client.history(name)
    kept = next((line.text for line in before if line.type == "assistant"), "")
    calls = {line.id for line in after if line.type == "call"}
    answered = {line.call for line in after if line.type == "result"}
    outcomes = [line.outcome for line in after if line.type == "result"]
    return SceneResult(
        before=_reading("after the first stop", before),
        after=_reading("after the second", after),
        claims=(
            SceneClaim(says="what was heard of the story is kept", holds=heard.strip() in kept),
            SceneClaim(says="every call has its result", holds=bool(calls) and calls == answered),
            SceneClaim(
                says=f"which says what is known of the letter: {', '.join(outcomes)}",
                holds=outcomes == ["unknown"],
            ),
            SceneClaim(
                says="and the conversation goes on",
                holds=client.say(name, "Where were we?").status == 200,
            ),
        ),
    )


# ── kill -9 ──────────────────────────────────────────────────────────────────────────────────


def killed(host: ServerHost, tell: Tell) -> SceneResult:
    client, name = HttpClient(host.url), "a-killed-server"
    ask = 'call send_by_ship with {"to": "Narvik"}'
    client.say(name, "My name is Ada.")
    before = client.history(name)
    tell(f"“{ask}”, with an Idempotency-Key, and kill -9 while the tool runs")
    with client.listening(name, ask, key="tour-killed"):
        _wait_until(lambda: "Narvik" in _letters(host))
        host.kill()
    tell("the server is started again, and the client asks again with the same key")
    host.start()
    client = HttpClient(host.url)
    with client.listening(name, ask, key="tour-killed") as stream:
        answer = "".join(stream.pieces()).strip()
    after = client.history(name)
    return SceneResult(
        before=_reading("before the kill", before),
        after=_reading("after the restart", after),
        claims=(
            SceneClaim(
                says="what was acknowledged is there, id for id",
                holds=bool(before) and after[: len(before)] == before,
            ),
            SceneClaim(
                says="the turn that was cut off is there once, and whole",
                holds=[line.type for line in after[len(before) :]]
                == ["user", "call", "result", "assistant"],
            ),
            SceneClaim(
                says=f"the client has its answer: “{on_one_line(answer, 60)}”",
                holds=bool(answer) and after[-1].text == answer,
            ),
            SceneClaim(
                says=f"letters sent to Narvik: {_letters(host).count('Narvik')}; none was sent again in silence",
                holds=_letters(host).count("Narvik") == 1,
            ),
        ),
    )


# ── a lost answer is not run twice ───────────────────────────────────────────────────────────


def lost(host: ServerHost, tell: Tell) -> SceneResult:
    client, name = HttpClient(host.url), "a-lost-answer"
    ask = 'call send_letter with {"to": "Bergen"}'
    tell(f"“{ask}”, with an Idempotency-Key; the answer is lost on the way")
    with client.listening(name, ask, key="tour-lost") as stream:
        first = stream.turn  # the client closes the connection without reading on
    _wait_until(lambda: client.turns(name)[-1].state == "committed")
    before = client.history(name)
    tell("the client does not know, and sends the same again")
    with client.listening(name, ask, key="tour-lost") as stream:
        second, answer = stream.turn, "".join(stream.pieces())
    after = client.history(name)
    letters = _letters(host)
    return SceneResult(
        before=_reading("before the retry", before),
        after=_reading("after it", after),
        claims=(
            SceneClaim(says=f"the retry is answered: “{answer.strip()}”", holds="Bergen" in answer),
            SceneClaim(says=f"from the same turn: {first}", holds=first == second),
            SceneClaim(says="the conversation has not changed", holds=before == after),
            SceneClaim(
                says=f"letters sent to Bergen: {letters.count('Bergen')}",
                holds=letters.count("Bergen") == 1,
            ),
        ),
    )


SCENES = (
    Scene(
        title="A turn that fails leaves no trace",
        elsewhere="the failed message stays in the history",
        play=failure,
    ),
    Scene(
        title="A retry is exact",
        elsewhere="the retry finds its message in the history twice, and half an answer beside it",
        play=retry,
    ),
    Scene(
        title="Two first requests make one session",
        elsewhere="each makes one, and one of them is forgotten",
        play=together,
    ),
    Scene(
        title="A stop keeps what was said, and leaves no call without a result",
        elsewhere="the turn is lost, or the provider refuses the history from then on",
        play=stop,
    ),
    Scene(
        title="kill -9 in the middle of a turn loses nothing acknowledged",
        elsewhere="the conversation is gone, torn, or begins anew with status 200",
        play=killed,
    ),
    Scene(
        title="A lost answer is not run twice",
        elsewhere="the retry runs the tools again",
        play=lost,
    ),
)


# ── small things ─────────────────────────────────────────────────────────────────────────────


def _reading(title: str, lines: Iterable[HistoryLine]) -> ConversationState:
    return ConversationState(title=title, lines=tuple(map(str, lines)))


def _letters(host: ServerHost) -> list[str]:
    """The places that letters were really sent to."""
    log = host.here / "post" / "letters.txt"
    return log.read_text(encoding="utf-8").split() if log.exists() else []


def _wait_until(happened: Callable[[], bool]) -> None:
    """Poll until it has happened, or until `PATIENCE_S` has passed: then the claims fail."""
    until = time.monotonic() + PATIENCE_S
    while not happened() and time.monotonic() < until:
        time.sleep(0.05)
