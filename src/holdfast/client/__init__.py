"""A typed client for a Holdfast server: `/api` as methods, and one call that runs a turn.

    from holdfast.client.sync import Client

    client = Client("http://127.0.0.1:8484")
    with client.ask("demo", "Hello!", session="first") as answer:
        for event in answer: …
    client.session("first").version

`holdfast.client.aio` has the same for asyncio. What is asked (`requests`) and how an answer is read (`events`)
are values and plain functions that both share; the two modules only move bytes.
"""
