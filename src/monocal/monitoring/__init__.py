"""Watching over time: is a stream still calibrated, have its classes changed their frequencies, when to refit."""

from .watch import Alarm, Monitor, Window, monitor

__all__ = ["Alarm", "Monitor", "Window", "monitor"]
