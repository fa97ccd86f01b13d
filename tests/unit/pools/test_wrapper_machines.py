"""Whatever happens in whatever order, the wrappers answer every call exactly once; see wrapper_machines."""

from hypothesis import settings
from wrapper_machines import limited_machine, relaunching_machine

RelaunchingMachine, LimitedMachine = relaunching_machine(), limited_machine()

TestRelaunching = RelaunchingMachine.TestCase
TestRelaunching.settings = settings(max_examples=150, stateful_step_count=40)
TestLimited = LimitedMachine.TestCase
TestLimited.settings = settings(max_examples=100, stateful_step_count=40)
