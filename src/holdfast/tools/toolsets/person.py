"""The toolsets `user_prompt` and `open_url`: what only a person can do.

docker-agent shows a form, or opens a browser. A server has neither: its agent asks in its answer, and the person's reply
is the next message. So these tools change nothing, and need no permission.
"""

from __future__ import annotations

from holdfast.tools.built_in_tools import (
    BuiltInToolset,
    harmless_tool,
    parameters,
    text_in,
    text_output,
)
from holdfast.tools.tool import Json, ToolOutput, ToolRun

ASK = (
    "The user sees only your answers, so end your turn now with this question, and nothing else: {question}\n"
    "Their reply is the next message."
)
OPEN = "You cannot open it yourself: give the user this link in your answer: {url}"

_TEXT: Json = {"type": "string", "minLength": 1}


class UserPromptToolset(BuiltInToolset):
    """One tool, `user_prompt`: a question to the user, which the agent then asks in its answer."""

    def __init__(self) -> None:
        schema: Json = {"type": "object", "description": "JSON Schema of the reply that is wanted."}
        words = "Ask the user something. The reply comes with the user's next message."
        arguments = parameters(["message"], message=_TEXT, title=_TEXT, schema=schema)
        super().__init__(harmless_tool("user_prompt", words, arguments, _ask))


class OpenUrlToolset(BuiltInToolset):
    """One tool, which hands the user a link."""

    def __init__(self, url: str, *, name: str = "open_url") -> None:
        async def give(run: ToolRun) -> ToolOutput:
            return text_output(OPEN.format(url=url))

        super().__init__(harmless_tool(name, f"Let the user open {url}", parameters(), give))


async def _ask(run: ToolRun) -> ToolOutput:
    title, message = text_in(run.arguments, "title"), text_in(run.arguments, "message")
    return text_output(ASK.format(question=f"{title}: {message}" if title else message))
