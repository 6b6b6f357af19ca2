"""Fakes of the vendors that refuse what the vendors document as refused, and conversations that are driven past them.

Each fake has its own small table of what a model refuses, written from the vendor's pages and not from our tables: one
wrong fact must not agree with itself. `models/families/` names the pages.
"""
