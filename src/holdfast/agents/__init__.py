"""Agents: agent files, their sources, stable identity, teams."""
