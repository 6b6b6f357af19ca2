"""The OpenAI Agents SDK with a session that stores: SQLite, or SQLAlchemy."""

from agents import (
    Agent,
    Runner,
    SQLiteSession,
    function_tool,
    set_default_openai_api,
    set_tracing_disabled,
)
from agents.extensions.memory import SQLAlchemySession
from harness import AGENT, ARGS, FOLDER, INSTRUCTIONS, MODEL, Peer, charge_soon, serve

set_default_openai_api("chat_completions")
set_tracing_disabled(True)


@function_tool
async def charge(amount: int) -> str:
    """Charge somebody. It costs them money."""
    return await charge_soon()


class AgentsSdk(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.agent = Agent(name=AGENT, instructions=INSTRUCTIONS, model=MODEL, tools=[charge])
        self.streams = {}

    def session(self, conversation):
        if ARGS.variant == "sqlalchemy":
            url = f"sqlite+aiosqlite:///{FOLDER}/agents-sa.db"
            return SQLAlchemySession.from_url(conversation, url=url, create_tables=True)
        return SQLiteSession(conversation, FOLDER / "agents.db")

    async def ask(self, conversation, text):
        result = await Runner.run(self.agent, text, session=self.session(conversation))
        return result.final_output

    async def stream(self, conversation, text):
        result = Runner.run_streamed(self.agent, text, session=self.session(conversation))
        self.streams[conversation] = result
        try:
            async for event in result.stream_events():
                if event.type == "raw_response_event":
                    if event.data.type == "response.output_text.delta":
                        yield event.data.delta
        finally:
            self.streams.pop(conversation, None)

    async def cancel(self, conversation):
        result = self.streams.get(conversation)
        if result is None:
            return await super().cancel(conversation)
        mode = "after_turn" if ARGS.variant == "after turn" else "immediate"
        result.cancel(mode=mode)
        return f"result.cancel(mode={mode!r})"

    async def history(self, conversation):
        return [as_chat(item) for item in await self.session(conversation).get_items()]


def as_chat(item):
    kind = item.get("type", "message")
    if kind == "function_call":
        return {"role": "assistant", "tool_calls": [{"id": item["call_id"]}]}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": str(item["output"])}
    return {
        "role": item["role"],
        "content": item["content"],
        "marked": item.get("status") == "incomplete",
    }


serve(AgentsSdk)
