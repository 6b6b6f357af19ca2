"""Conversations of other agent programs, read from their files and converted into sessions.

Each program has a module that reads its SQLite file into a `ForeignConversation` (`foreign_conversation.py`): the
messages, calls and results in order, unchecked. `rebuilt_session.py` plays it as turns, with the fold that the server
uses, so that the session is always well formed; a list of repairs says what had to be closed or left out.

The files are opened for reading only. Ids are derived from the content, so importing a file twice changes nothing.
"""
