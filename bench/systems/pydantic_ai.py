"""Pydantic AI, which leaves histories to its users, and shows them how; and on DBOS, which makes runs durable."""

from __future__ import annotations

from typing import ClassVar

from systems.harnessed import Harnessed


class PydanticAi(Harnessed):
    name = "pydantic-ai"
    title = "Pydantic AI"
    variant = "chat example"
    configured = (
        "`agent.run(text, message_history=…)`; each run's `new_messages_json()` is a row in SQLite, as in its "
        "example of a chat app; stopped by a `CancellationToken`, and by `timeout=`; behind FastAPI."
    )
    environment = "pydantic-ai"
    packages: ClassVar[tuple[str, ...]] = ("pydantic-ai-slim", "openai")
    script = "serve_pydantic_ai.py"


class PydanticAiKept(PydanticAi):
    variant = "ConversationStore"
    configured = (
        "`agent.run(text, conversation=await store.load(id))`, then `store.save(result)`, on a `ConversationStore` "
        "over SQLite, which checks revisions; of a run that was stopped, `repair_messages(RunCancelled.all_messages())` is saved."
    )
    choice = "kept"


class PydanticAiDbos(PydanticAi):
    variant = "DBOS"
    configured = (
        "`DBOSDurability`, `agent.run` in a `@DBOS.workflow` on SQLite, the tool a `@DBOS.step`; turns stand in a "
        "queue with `partition_concurrency=1` by conversation, keys are workflow ids; behind FastAPI."
    )
    packages = ("pydantic-ai-slim", "dbos", "openai")
    script = "serve_pydantic_ai_dbos.py"
    knows_keys = True


class PydanticAiSteps(PydanticAi):
    variant = "StepPersistence"
    configured = (
        "`StepPersistence(store=SqliteStepStore(…))` of its harness; a turn goes on from "
        "`continue_run(store, run_id=…, include_interrupted=True)` of the conversation's last run; behind FastAPI."
    )
    environment = "pydantic-ai-harness"
    packages = ("pydantic-ai-slim", "pydantic-ai-harness", "openai")
    script = "serve_pydantic_ai_steps.py"
