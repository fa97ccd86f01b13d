"""The properties of every run, on all kinds of runs: servers, relations, tables, staleness, stragglers, drains."""

import pytest
from clusters import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_properties import PROPERTIES

from dorylus.pipeline import Scheduler
from dorylus.servers.stash import Stash


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@settings(max_examples=100)
@given(case=cases(staleness=st.none()))
def test_of_exact_runs(holds, case):
    holds(case, Scheduler, Stash)


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@settings(max_examples=150)
@given(case=cases(staleness=st.sampled_from([1, 0, 2, 3])))
def test_of_asynchronous_runs(holds, case):
    holds(case, Scheduler, Stash)
