"""The transfer of sessions between stores: exports, imports, copies."""
