"""The pool whose dense tasks run on serverless functions: programs, data paths, invocations, and their answers."""
