"""Conversations that were begun elsewhere: read from the files of other agent programs, made ours.

Each program has a module that reads its SQLite file into a `Foreign` (`foreign_conversation.py`): who said what, in order, without
judgement. `rebuilt_session.py` plays that as turns, with the same fold that plays ours, so that what arrives in a store is
well formed whatever it was before; what had to be closed or left out is told.

Their files are opened for reading only. Ids come from what is read, so importing twice changes nothing.
"""
