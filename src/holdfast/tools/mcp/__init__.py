"""Tools of MCP servers: programs that Holdfast starts, or remote servers that it calls over HTTP.

`config` describes a server, `connection` starts and stops it, `toolset` makes tools of its offer. `sdk` alone speaks
the protocol, with the official SDK; `lazy_sdk` imports it when the first server is needed. `sign_in` makes a login with
the SDK, `logins` keeps it sealed, and `signed_requests` uses and refreshes it.
"""
