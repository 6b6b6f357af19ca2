"""LangGraph as a library: its agent with a checkpointer, behind the small server of the harness."""

from __future__ import annotations

from systems.harnessed import Harnessed


class LangGraph(Harnessed):
    name = "langgraph"
    title = "LangGraph"
    variant = "SQLite"
    configured = (
        "`create_agent(…, checkpointer=AsyncSqliteSaver)` with a thread for each conversation, behind FastAPI; "
        'durability as it is by default, which is "async".'
    )
    environment = "langgraph"
    packages = (
        "langgraph",
        "langgraph-checkpoint-sqlite",
        "langgraph-checkpoint-postgres",
        "langchain",
        "langchain-openai",
        "deepagents",
    )
    script = "serve_langgraph.py"
    choice = "sqlite"


class LangGraphSync(LangGraph):
    variant = "SQLite, sync"
    configured = (
        'The same with `durability="sync"`, the most durable of three: '
        "a checkpoint is written before the next step starts."
    )
    choice = "sqlite sync"


class LangGraphExit(LangGraph):
    variant = "SQLite, exit"
    configured = 'The same with `durability="exit"`: checkpoints are written when the run ends, well or badly.'
    choice = "sqlite exit"


class LangGraphPatched(LangGraph):
    variant = "SQLite, sync, patched"
    configured = (
        '`durability="sync"`, and `PatchToolCallsMiddleware` of deepagents: '
        "a call without a result is given one that says so, before the next turn."
    )
    choice = "sqlite sync patched"


class LangGraphResumed(LangGraph):
    variant = "SQLite, sync, resumed"
    configured = (
        '`durability="sync"`; a thread that has steps left is resumed with `ainvoke(None, …)` before its next turn, '
        "as the pages on durable execution show, under a lock of the server's own."
    )
    choice = "sqlite sync resumed"


class LangGraphRewound(LangGraph):
    variant = "SQLite, sync, rewound"
    configured = (
        '`durability="sync"`; each turn starts from the newest checkpoint of its thread that has no steps left, '
        "as the pages on time travel show, under a lock of the server's own."
    )
    choice = "sqlite sync rewound"


class LangGraphPostgres(LangGraph):
    variant = "PostgreSQL"
    configured = (
        "`create_agent(…, checkpointer=AsyncPostgresSaver)` on a pool of connections, behind FastAPI, "
        'which the documentation recommends for production; durability "async", the default.'
    )
    needs_postgres = True
    choice = "postgres"


class LangGraphPostgresSync(LangGraphPostgres):
    variant = "PostgreSQL, sync"
    configured = 'The same with `durability="sync"`.'
    choice = "postgres sync"
