"""Your own agent code, with conversations that hold: no server, and no agents of ours.

    python examples/embed.py [sqlite:///FILE]

Two turns are kept; the one between them fails and leaves no trace. Run it twice on a file: it remembers.
"""

from __future__ import annotations

import asyncio
import sys

from holdfast import (
    LOCAL,
    AssistantMessage,
    SessionKey,
    Sessions,
    UserMessage,
    nobody_plays,
    open_store,
    played,
    text_of,
)


async def my_agent(messages: list[tuple[str, str]]) -> str:
    """Stands for whatever you have: an SDK, a framework, a rule."""
    _, question = messages[-1]
    if "storm" in question:
        raise ConnectionError("the model does not answer")
    return f"You asked {question!r}, and I know {len(messages) - 1} messages before that."


async def ask(sessions: Sessions, key: str, question: str) -> str:
    """One turn. It is in the conversation when this returns, and not at all if it raises."""
    async with played(sessions, key, question) as turn:
        answer = await my_agent(turn.messages)
        await turn.say(answer)
    return answer


async def main(url: str = "memory:") -> None:
    store = await open_store(url)
    try:
        async with Sessions(store, nobody_plays) as sessions:
            for question in ("Where is Oslo?", "Is there a storm?", "How do I get there?"):
                try:
                    print(await ask(sessions, "trip-to-oslo", question))
                except ConnectionError as error:
                    print(f"[{error}: as if it had never been asked]")
            await show(sessions, "trip-to-oslo")
    finally:
        await store.close()


async def show(sessions: Sessions, key: str) -> None:
    """What is in the conversation, for people to read."""
    row = await sessions.store.resolve(LOCAL, SessionKey(key))
    snapshot = await sessions.snapshot(LOCAL, row.session_id) if row else None
    if snapshot is not None:
        print(f"\n{key}, version {snapshot.version}:")
        for item in snapshot.items:
            if isinstance(item, UserMessage | AssistantMessage):
                who = "you" if isinstance(item, UserMessage) else "agent"
                print(f"  {who}: {text_of(item.content)}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
