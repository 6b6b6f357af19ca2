"""The guided tour behind `holdfast demo`: six scenes, each of which proves one promise to whoever watches.

`launch` starts a real server and kills it, `visitor` talks to it over HTTP as any client would, `scenes` says what
is done and what must be true afterwards, and `telling` puts it on the screen.

Nothing here looks inside: whatever a scene claims was read back through the public API, from a process of its own.
"""
