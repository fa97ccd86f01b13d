"""A test bench for crashes: every writer of files is killed at each system call by which it changes them.

``faults.c`` stands under libc and kills the process, or fails a call, at the n-th call that changes something in a
folder. ``writers`` are what is killed: each knows the state before, how to write the state after, and which of the two
it finds. ``examination`` kills a forked child of a warm process at one call after the other, also with what was not
forced to disk taken away, as a power cut would. Nothing of the project is replaced by a double.
"""
