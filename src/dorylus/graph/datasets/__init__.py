"""Data sets by name, file or folder: ``load`` and the formats that it reads."""
