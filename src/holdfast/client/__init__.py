"""A typed client for a Holdfast server: `/api` as methods, and one call that runs a turn.

    from holdfast.client.sync import Client

    client = Client("http://127.0.0.1:8484")
    with client.ask("demo", "Hello!", session="first") as answer:
        for event in answer: …
    client.session("first").version

`holdfast.client.aio` has the same for asyncio. Both are one text: `methods` says what each call sends and is
answered with, `events` how a stream is read; `sync` and `aio` only move bytes.
"""
