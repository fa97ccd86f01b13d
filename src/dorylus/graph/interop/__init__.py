"""Converters from and to other libraries, one module each; a library is imported only when its converter is called."""
