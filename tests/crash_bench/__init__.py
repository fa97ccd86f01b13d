"""A test bench for crashes: every writer of files is killed at each system call by which it changes them.

``faults.c`` is loaded before libc; it kills the process, or fails a call, at the n-th call that changes a folder.
``writers`` are the killed code: each knows the state before, how to write the state after, and which of the two it
finds. ``examination`` kills a forked child of a warm process at one call after the other; for a power cut it also
removes what was not forced to disk. Nothing of the project is replaced by a double.
"""
