"""Readers of edge files, one module per format: text, Parquet, Arrow IPC, NumPy and raw binary."""
