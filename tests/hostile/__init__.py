"""Hostile input that is well-formed: valid samples changed by structure, and a child process that reads them.

A *kind* of input (frames, checkpoints, ...) makes samples, changes them and hands them to the code that reads them.
Each case must end in a value or an error of ours, in time, and within twice the memory that the largest sample takes.
"""
