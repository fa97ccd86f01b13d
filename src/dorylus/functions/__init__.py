"""Dense tasks as programs that run without torch: their export, and what runs inside a function."""
