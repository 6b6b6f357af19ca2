"""Tools of MCP servers: programs that are started beside us, or servers that are spoken to over HTTP.

`config` says which server it is, `link` starts and ends it, `toolset` makes tools of what it offers. `sdk` alone speaks
the protocol, with the official SDK; `loading` brings it in when the first server is needed.
"""
