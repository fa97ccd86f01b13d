"""A test bench for functions: the real handler in real processes, and a saboteur that makes invocations go wrong.

What goes wrong on the service's side is done around an invoker (``saboteur``), what goes wrong inside a function by an
entry point that wraps the handler (``inside``). A field in an invocation's header says what it is to be (``misdeeds``):
the handler itself knows of none of this.
"""
