"""Calls tried again: time-outs, losses, throttling, and a service that is down."""
