"""The pool that runs dense tasks on serverless functions: programs, data paths, invocations, and their answers."""
