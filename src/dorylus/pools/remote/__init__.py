"""Calls that travel to functions: programs and arrays, the two data paths, and what comes back."""
