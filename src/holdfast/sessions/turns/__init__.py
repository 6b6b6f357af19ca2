"""Turns that this node owns: played, recorded, watched, ended, recovered."""
