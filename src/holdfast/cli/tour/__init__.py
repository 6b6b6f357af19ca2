"""The guided tour behind `holdfast demo`: six scenes, each of which proves one promise to the person who watches.

`demo_server` starts a real server and kills it, `http_client` talks to it over HTTP as any client would, `scenes` has
the steps of each scene and what must be true afterwards, and `narration` prints them.

The server is a process of its own, and every claim is read back through its public API.
"""
