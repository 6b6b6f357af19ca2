"""Conversations that hold, in agent frameworks that people have: without our server, agents or loop.

Each module fits one framework and imports nothing of it, so it costs nothing to those who do not use it:

    openai_agents   a `Session` for the OpenAI Agents SDK
    pydantic_ai     a history of messages for Pydantic AI

What frameworks lack is a word for "the turn is over". `framework_turns.py` adds it: what a run says is held back until it is
whole, and then lands in one commit, on top of the version that the run has seen.
"""
