"""Graphs of other libraries, one small module each; the library is imported only when its converter is called."""
