"""A typed client for a Holdfast server: `/api` as methods, and one call that runs a turn.

    from holdfast.client.sync import Client

    client = Client("http://127.0.0.1:8484")
    with client.ask("demo", "Hello!", session="first") as answer:
        for event in answer: …
    client.session("first").version

`holdfast.client.aio` has the same for asyncio. Both share their code: `methods` defines the request and the answer of
each call, `events` reads streams; `sync` and `aio` only move bytes.
"""
