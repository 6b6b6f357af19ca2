"""The player: it carries out the effects of a turn and records events, until only the turn's end is left.

`core/` decides what should happen; this module does it. Models and tools run at the same time, each in a task; all
of them are cancelled when the turn is, at any await, and the events that they have recorded stand.

1. When a player ends, for any reason, none of its tasks is still running.
2. An error of the turn's own model, or of ours, ends the turn. An error in a sub-agent's branch becomes the result
   of its call, for the agent that gave the task.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from typing import TypeAlias

import msgspec

from holdfast import limits
from holdfast.agents.agent import Agent, Team
from holdfast.core.attachments import set_aside
from holdfast.core.items import (
    AssistantMessage,
    Interruption,
    Item,
    Path,
    Text,
    ToolCall,
    TurnLimits,
    UserMessage,
    result_for,
    text_of,
)
from holdfast.core.ports import OpenTurn
from holdfast.core.turns import events as ev
from holdfast.core.turns.closure import branch_work
from holdfast.core.turns.deltas import Accumulator, Delta, FinishDelta
from holdfast.core.turns.draft import Draft
from holdfast.core.turns.effects import (
    AskModel,
    Close,
    Effect,
    Finish,
    ReturnBranch,
    RunCall,
    StopAtLimit,
    limit_reached,
    wanted,
)
from holdfast.core.turns.repeated_calls import repeated_steps
from holdfast.errors import InvalidValue, TurnFailed
from holdfast.loop import spans, team_tools
from holdfast.loop.budgets import exhausted_budget, paid_from_budgets
from holdfast.loop.calls import Calls
from holdfast.loop.compaction import PromptCompaction
from holdfast.loop.context import prompt_for
from holdfast.loop.encoded_histories import EncodedHistories
from holdfast.loop.hooks.turn_hooks import TurnHooks
from holdfast.loop.model_choice import on_chosen_model
from holdfast.loop.prompt_sizes import PromptSizes
from holdfast.models.model import ModelFailed, Prompt, estimate_of
from holdfast.observe.tally import Tally
from holdfast.tools.hooks import HookEvent
from holdfast.tools.tool import Json

FindTeam: TypeAlias = Callable[[ev.TurnRequest], AbstractContextManager[Team]]
"""Finds the team of agents that plays a turn, and keeps it open while the context lasts. Raises TurnFailed."""

LOOK_EVERY = 1024
"""How many characters a model streams between two checks of the limits; every delta counts as `DELTA` more."""
DELTA = 16
AT_ONCE = LOOK_EVERY // DELTA
"""How many deltas are recorded at once at most."""


class Player:
    """Plays turns with the agents of a team. It is a `Play`: hand it to the sessions."""

    def __init__(
        self,
        find_team: FindTeam,
        *,
        histories: EncodedHistories | None = None,
        tally: Tally | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Models and tools are counted in `tally`, if the caller wants to know."""
        self._find_team = find_team
        self._tally = tally or Tally()
        self._now_s = now_s
        self._histories = histories or EncodedHistories(bytes_max=limits.history_cache_bytes)
        self._gauge = PromptSizes()

    async def __call__(self, turn: OpenTurn) -> None:
        with self._find_team(turn.turn.request) as team, spans.invoking(turn, team):
            hooks = TurnHooks(turn)
            compaction = PromptCompaction(turn, self._histories, self._gauge, hooks)
            playing = _Playing(turn, team, compaction, hooks, self._tally, now_s=self._now_s)
            await playing.run()


class _Playing:
    """The player of one turn."""

    def __init__(
        self,
        turn: OpenTurn,
        team: Team,
        compaction: PromptCompaction,
        hooks: TurnHooks,
        tally: Tally,
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._now_s = now_s
        self._paid_s = now_s()
        """Up to when the time of this turn was paid from budgets."""
        self._turn = turn
        self._team = team
        self._compaction = compaction
        self._hooks = hooks
        self._tally = tally
        self._calls = Calls(turn, team, hooks, tally)
        self._told: tuple[str, ...] = ()
        """Words of hooks for the models of this turn."""
        self._room = asyncio.Semaphore(limits.calls_side_by_side_max)
        """Bounds how many models are asked at once: as many as tools run."""
        self._running: dict[Hashable, asyncio.Task[None]] = {}

    async def run(self) -> None:
        if self._turn.snapshot.version == 0 and self._turn.turn.untouched:
            self._told += await self._tell_hooks("session_start")
        request = self._turn.turn.request

        def prompt() -> dict[str, Json]:
            return {"prompt": _words_of(request.input)}

        if request.came_ms:  # it was queued
            self._told += await self._tell_hooks("user_followup_submit", prompt)
        if request.continues is not None and _ended_at_limit(self._turn.snapshot.items):
            await self._tell_hooks("on_session_resume", lambda: _steps_of(request.limits))
        self._told += await self._tell_hooks("user_prompt_submit", prompt)
        try:
            while True:
                match await self._next():
                    case (Finish(),) | (Close(),):
                        if any(each.waits_for == "approval" for each in self._turn.turn.waiting):
                            await self._tell_hooks("on_user_input")
                        elif self._turn.turn.complete:
                            await self._tell_hooks("stop")
                        return
                    case (StopAtLimit(limit=reached),):
                        await self._turn.record(ev.Interrupted(by="limit", detail=reached))
                        await self._tell_hooks("on_max_iterations", lambda: {"limit": reached})
                        await self._tell_hooks("notification", lambda: _notice("warning", reached))
                        return
                    case effects:
                        self._start(effects)
                        await self._wait()
        finally:
            await self._stop()

    async def _tell_hooks(
        self, event: HookEvent, facts: Callable[[], Mapping[str, Json]] = dict
    ) -> tuple[str, ...]:
        """Tell the hooks of the agent that speaks. The facts are put together only if it has hooks."""
        speaker = self._named(self._turn.turn.agent or self._team.entry)
        if not speaker.hooks.every:  # nearly always
            return ()
        return await self._hooks.happened(event, speaker, facts())

    async def _next(self) -> tuple[Effect, ...]:
        """The effects to carry out now. Between two steps, steered messages are taken first."""
        if self._turn.turn.root.idle and (steered := await self._turn.take_steering()):
            self._told += await self._tell_hooks(
                "user_steering_messages_submit",
                lambda: {"steering_messages": [_words_of((each,)) for each in steered]},
            )
        return wanted(self._turn.turn)

    # ── tasks ──

    def _start(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            name, work = self._work(effect)
            if name not in self._running:
                self._running[name] = asyncio.create_task(work())

    def _work(self, effect: Effect) -> tuple[Hashable, Callable[[], Coroutine[None, None, None]]]:
        """A name for an effect while it is under way, and the function that carries it out."""
        match effect:
            case AskModel(path=path, agent=agent):
                return path, lambda: self._ask(path, agent or self._team.entry)
            case RunCall(call=call):
                return call.id, lambda: self._calls.run(call)
            case ReturnBranch(call=call, text=text):
                return call.id, lambda: self._return(call, text)
            case _:
                raise AssertionError(f"{effect} is not carried out in a task")

    async def _wait(self) -> None:
        """Wait until a task has ended. Raises its error, if it failed."""
        assert self._running, "until the turn ends, an effect is wanted or under way"
        await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
        done = {name: task for name, task in self._running.items() if task.done()}
        for name in done:
            del self._running[name]
        failures = [failure for failure in map(_failure, done.values()) if failure is not None]
        if failures:
            try:
                raise failures[0]
            finally:
                del failures, done

    async def _stop(self) -> None:
        """Cancel all tasks and wait until they have ended, even if this task is cancelled meanwhile."""
        cancelled: asyncio.CancelledError | None = None
        for task in self._running.values():
            task.cancel()
        while not all(task.done() for task in self._running.values()):
            try:
                await asyncio.wait(self._running.values())
            except asyncio.CancelledError as error:
                cancelled = error
        for task in self._running.values():
            _failure(task)  # retrieve the error of a cancelled task, and ignore it
        self._running.clear()  # their errors hold references to this player
        if cancelled is not None:
            try:
                raise cancelled
            finally:
                del cancelled

    # ── models ──

    async def _ask(self, path: Path, name: str) -> None:
        answer = Accumulator(self._turn.mint, agent=name, path=path)
        async with self._room:
            try:
                agent = await on_chosen_model(
                    self._named(name), path, self._turn, self._calls.toolbox
                )
                await self._step(agent, path, answer)
            except TurnFailed as failure:
                known = self._team.agents.get(name)
                if known is not None:  # else it is gone from its source, and its hooks with it
                    await self._tell_failure(known, str(failure))
                if not path:
                    raise
                await self._give_up_branch(path, failure, answer.usage)

    async def _tell_failure(self, agent: Agent, why: str) -> None:
        """Tell an agent's hooks that its step has failed."""
        await self._hooks.happened("on_error", agent, {"error": why})
        await self._hooks.happened("notification", agent, _notice("error", why))
        await self._hooks.happened("turn_end", agent, {"reason": "error"})

    async def _step(self, agent: Agent, path: Path, answer: Accumulator) -> None:
        """One step of a branch: ask its model, and record the answer."""
        turn = self._turn
        if (budget := exhausted_budget(agent, turn)) is not None:
            await self._end_at_limit(budget)
            return
        tools = await self._calls.offered(agent, path)
        view = await self._compaction.view(agent, path, tools)
        if agent.hooks.every:
            told = (*self._told, *await self._hooks.happened("turn_start", agent))
            view = msgspec.structs.replace(view, system="\n\n".join((view.system, *told)).strip())
            await self._hooks.happened("before_llm_call", agent)
        estimate = estimate_of(agent.model, view.size_bytes)
        await turn.record(ev.StepStarted(path=path, model=agent.model.name, estimate=estimate))
        prompt = await prompt_for(agent, path, turn, view)
        try:
            with spans.asking(turn, agent, path, answer, self._tally):
                heard = await self._listen(agent, path, answer, prompt)
            if not heard:
                return  # a limit was reached: `wanted` gives StopAtLimit next
        except ModelFailed as failure:
            if not self._compaction.may_help(agent, path, view, failure):
                raise
            await self._turn.record(self._broken_off(path, failure, answer.usage))
            return  # the model is asked again, with a shorter prompt
        self._compaction.learn(agent, view, answer.usage)
        draft = self._draft(path)
        if sum(each.kind == "call" for each in draft.items) > limits.calls_per_step_max:
            raise ModelFailed(
                f"the model asked for more than {limits.calls_per_step_max} calls at once",
                reason="upstream_garbled",
            )
        said = await self._light(answer.answered(draft, model=agent.model.name))
        judged = await self._calls.judged(agent, said)
        await turn.record(*self._paid(agent, judged))
        if self._goes_in_circles(agent, path):
            await self._end_at_limit("max_consecutive_tool_calls")
        if agent.hooks.every:
            await self._hooks.happened("after_llm_call", agent, _facts_of(said, agent.model.name))
            await self._hooks.happened("turn_end", agent, {"reason": "normal"})

    def _paid(self, agent: Agent, events: tuple[ev.Event, ...]) -> tuple[ev.Event, ...]:
        """The events of a step, with what it has used of its agent's budgets."""
        answered, *others = events
        assert isinstance(answered, ev.Answered)
        now_s = self._now_s()
        time_ms, self._paid_s = round(1000 * (now_s - self._paid_s)), now_s
        changes = paid_from_budgets(agent, self._turn, answered.usage, time_ms)
        return (
            msgspec.structs.replace(answered, changes=changes) if changes else answered,
            *others,
        )

    def _goes_in_circles(self, agent: Agent, path: Path) -> bool:
        most = agent.same_calls_max
        return most is not None and repeated_steps(self._turn.turn.items, path) >= most

    async def _end_at_limit(self, limit: str) -> None:
        """End the turn, because going on would pass a bound of its agent."""
        if self._turn.turn.interrupted is None:
            await self._turn.record(ev.Interrupted(by="limit", detail=limit))
            await self._tell_hooks("notification", lambda: _notice("warning", limit))

    async def _light(self, said: ev.Answered) -> ev.Answered:
        """The answer, with its large pictures in the store."""
        items, large = set_aside(said.items)
        for data in large:
            await self._turn.keep_blob(data, "")
        return msgspec.structs.replace(said, items=items) if large else said

    async def _listen(self, agent: Agent, path: Path, answer: Accumulator, prompt: Prompt) -> bool:
        """Record the stream of a model until it ends. False if a limit was reached before that."""
        turn, weight, looked_at = self._turn, 0, 0
        async with aclosing(agent.model.stream(prompt)) as coming:
            async for deltas in coming:
                for some in _portions(deltas):
                    events, failure = _heard(answer, some)
                    if events:
                        await turn.record(*events)
                    if failure is not None:
                        try:
                            raise failure
                        finally:
                            del failure
                    # Counted here: reading the turn for every delta would fold each piece by itself.
                    for event in events:
                        weight += DELTA
                        if type(event) is ev.Grew:
                            weight += len(event.text)
                    if weight - looked_at >= LOOK_EVERY:
                        looked_at = weight
                        if limit_reached(turn.turn) is not None:
                            return False
        forced = team_tools.forced_handoff(agent, depth=len(path))
        if forced is not None and answer.finish == "stop" and not answer.asked_for_tools:
            await turn.record(
                *answer.events(forced), *answer.events(FinishDelta(finish="tool_calls"))
            )
        if not answer.finished:
            raise ModelFailed(
                "the model broke off in the middle of its answer",
                reason="upstream_broke_off",
                transient=True,
            )
        return True

    # ── branches ──

    async def _give_up_branch(self, path: Path, failure: TurnFailed, reported: ev.Usage) -> None:
        """End the branch of a sub-agent that failed: its call gets an error as its result."""
        branch, pending = self._turn.turn.branch(path), self._turn.turn.find_pending(path[-1])
        assert branch is not None and pending is not None
        done = branch_work(self._turn.turn, path)
        words = Text(text=f"{branch.agent} could not finish: {failure}\n{done}")
        failed = ev.ToolFinished(
            result=result_for(pending.call, "error", (words,), self._turn.mint)
        )
        if branch.draft is None:
            await self._turn.record(failed)
            return
        await self._turn.record(self._broken_off(path, failure, reported), failed)

    def _broken_off(self, path: Path, failure: TurnFailed, reported: ev.Usage) -> ev.StepBroken:
        """The event that ends the step under way. People see its text so far, models do not."""
        branch = self._turn.turn.branch(path)
        assert branch is not None and branch.draft is not None, "its step is under way"
        broken = branch.draft.broken(agent=branch.agent, path=path, state="set_aside")
        usage = branch.draft.usage(failed=True, reported=reported)
        return ev.StepBroken(items=broken, path=path, why=str(failure), usage=usage)

    async def _return(self, call: ToolCall, text: str) -> None:
        branch = self._turn.turn.branch((*call.path, call.id))
        result = result_for(call, "ok", (Text(text=text),), self._turn.mint)
        await self._turn.record(ev.ToolFinished(result=result))
        done_by = branch.agent if branch is not None else ""
        facts: dict[str, Json] = {"agent_name": done_by, "stop_response": text}
        parent = self._team.agents.get(call.agent or self._team.entry)
        if parent is not None:
            await self._hooks.happened("subagent_stop", parent, facts)

    def _draft(self, path: Path) -> Draft:
        branch = self._turn.turn.branch(path)
        assert branch is not None and branch.draft is not None, "its step is under way"
        return branch.draft

    def _named(self, name: str) -> Agent:
        agent = self._team.agents.get(name)
        if agent is None:
            there = ", ".join(self._team.agents)
            raise TurnFailed(
                "model_error",
                f"the agent {name!r} is not in its source any more (there are: {there})",
                reason="agent_not_found",
            )
        return agent


def _words_of(items: Iterable[Item]) -> str:
    """The text of these messages, for hooks."""
    said = (each for each in items if isinstance(each, UserMessage | AssistantMessage))
    return "\n".join(text_of(each.content) for each in said)[: limits.hook_response_chars_max]


def _facts_of(said: ev.Answered, model: str) -> dict[str, Json]:
    """What hooks are told of an answer, in docker-agent's words. A model without a price has no cost."""
    used = said.usage
    facts: dict[str, Json] = {
        "stop_response": _words_of(said.items),
        "model_id": model,
        "usage": {
            "input_tokens": used.input_tokens,
            "output_tokens": used.output_tokens,
            "cached_input_tokens": used.cached_tokens,
            "cached_write_tokens": used.cache_write_tokens,
            "reasoning_tokens": used.reasoning_tokens,
        },
    }
    return {**facts, "cost": used.cost_micros / 1_000_000} if used.cost_micros else facts


def _ended_at_limit(items: Sequence[object]) -> bool:
    """Whether the turn before has reached a limit."""
    last = next((each for each in reversed(items) if isinstance(each, Interruption)), None)
    return last is not None and last.ended_by == "limit"


def _steps_of(bounds: TurnLimits) -> dict[str, Json]:
    most = bounds.steps_max or limits.steps_max
    return {"previous_max_iterations": most, "new_max_iterations": most}


def _notice(level: str, words: str) -> dict[str, Json]:
    return {"notification_level": level, "notification_message": words}


def _heard(
    answer: Accumulator, deltas: Sequence[Delta]
) -> tuple[list[ev.Event], ModelFailed | None]:
    """The events of these deltas, up to the first that cannot be stored; that one is a failure of the model."""
    events: list[ev.Event] = []
    try:
        answer.hear(deltas, events)
    except InvalidValue as error:
        failure = ModelFailed(f"its answer cannot be kept: {error}", reason="upstream_garbled")
        failure.__cause__ = error
        return events, failure
    return events, None


def _portions(deltas: Sequence[Delta]) -> Sequence[Sequence[Delta]]:
    """The deltas in portions of at most `AT_ONCE`."""
    if len(deltas) <= AT_ONCE:
        return (deltas,)
    return [deltas[start : start + AT_ONCE] for start in range(0, len(deltas), AT_ONCE)]


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    """The error of a task that has ended, if any. This player did not cancel it, so a cancel came from inside the
    task."""
    if task.cancelled():
        return TurnFailed("model_error", "something that the turn needs was cancelled from inside")
    return task.exception()
