"""How many calls are under way: a limit, an order, and the autotuner that moves the limit."""
