"""The wrappers answer every call exactly once, in any order of events; see wrapper_machines."""

from wrapper_machines import limited_machine, relaunching_machine

from draws import draws

RelaunchingMachine, LimitedMachine = relaunching_machine(), limited_machine()

TestRelaunching = RelaunchingMachine.TestCase
TestRelaunching.settings = draws(20, stateful_step_count=40)
TestLimited = LimitedMachine.TestCase
TestLimited.settings = draws(15, stateful_step_count=40)
