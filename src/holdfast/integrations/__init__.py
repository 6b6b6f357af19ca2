"""Transactional conversations for other agent frameworks, without Holdfast's server, agents or loop.

Each module is for one framework and imports nothing of it, so it costs nothing if the framework is not used:

    openai_agents   a `Session` for the OpenAI Agents SDK
    pydantic_ai     a history of messages for Pydantic AI

Frameworks have no event for "the turn is over". `framework_turns.py` adds it: the messages of a run are held back until
the run is complete, and are then committed as one turn, on top of the version that the run has read.
"""
