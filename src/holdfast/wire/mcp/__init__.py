"""The Model Context Protocol, as a server of agents speaks it.

`messages` has JSON-RPC, `revisions` tells which revision of the protocol a request speaks and what its client can do,
`tools` describes agents as tools and reads calls of them, `results` and `tasks` show what became of a call, `elicitation`
asks about calls that wait for an approval, `progress` tells how far a turn is, `resources` shows conversations.

The types are ours: the official SDK takes most of a second to load, and validates with a library that costs more than
the rest of a request. Tests hold every message against the SDK's types.
"""
