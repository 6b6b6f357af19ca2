"""Microsoft's Agent Framework with a history on disk: a provider that appends messages, or snapshots of sessions."""

from agent_framework import Agent, AgentSession, FileHistoryProvider, FileSessionStore, tool
from agent_framework.openai import OpenAIChatCompletionClient
from harness import AGENT, ARGS, FOLDER, INSTRUCTIONS, MODEL, Peer, charge_soon, serve


@tool(approval_mode="never_require")
async def charge(amount: int) -> str:
    """Charge somebody. It costs them money."""
    return await charge_soon()


def agent_with(**how):
    client = OpenAIChatCompletionClient(model=MODEL, base_url=ARGS.upstream, api_key="bench")
    return Agent(client=client, name=AGENT, instructions=INSTRUCTIONS, tools=[charge], **how)


class WithHistory(Peer):
    """The provider loads what came before and appends what is new, once per run or once per call of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.provider = FileHistoryProvider(FOLDER / "sessions")
        self.agent = agent_with(
            context_providers=[self.provider],
            require_per_service_call_history_persistence=ARGS.variant == "each call",
        )

    async def ask(self, conversation, text):
        session = self.agent.create_session(session_id=conversation)
        return (await self.agent.run(text, session=session)).text

    async def stream(self, conversation, text):
        session = self.agent.create_session(session_id=conversation)
        async for update in self.agent.run(text, session=session, stream=True):
            if update.text:
                yield update.text

    async def history(self, conversation):
        return list(as_chat(await self.provider.get_messages(conversation)))


class WithSnapshots(Peer):
    """A session with its messages is loaded before a run and stored after it, as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.agent = agent_with()
        self.store = FileSessionStore(FOLDER / "sessions")

    async def session(self, conversation):
        return await self.store.get(conversation) or AgentSession(session_id=conversation)

    async def ask(self, conversation, text):
        session = await self.session(conversation)
        response = await self.agent.run(text, session=session)
        await self.store.set(conversation, session)
        return response.text

    async def stream(self, conversation, text):
        session = await self.session(conversation)
        async for update in self.agent.run(text, session=session, stream=True):
            if update.text:
                yield update.text
        await self.store.set(conversation, session)

    async def history(self, conversation):
        session = await self.session(conversation)
        return list(as_chat(session.state.get("in_memory", {}).get("messages", [])))


def as_chat(messages):
    for message in messages:
        results = [each for each in message.contents if each.type == "function_result"]
        if results:
            for each in results:
                yield {"role": "tool", "tool_call_id": each.call_id, "content": str(each.result)}
            continue
        calls = [{"id": each.call_id} for each in message.contents if each.type == "function_call"]
        yield {"role": str(message.role), "content": message.text, "tool_calls": calls}


serve(WithSnapshots if ARGS.variant == "snapshots" else WithHistory)
