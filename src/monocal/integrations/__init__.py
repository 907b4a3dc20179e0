"""Adapters to other projects' interfaces, one a file."""
