"""A test bench for functions: the real handler in real processes, and a saboteur that injects faults into invocations.

An invoker around the real one injects the faults of a service (``saboteur``). An entry point that wraps the handler
injects the faults of a function (``inside``); a field in the invocation's header names the fault (``injected_faults``).
The handler itself is unchanged.
"""
