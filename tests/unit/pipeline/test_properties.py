"""The properties of every run, on all kinds of runs: servers, relations, tables, staleness, stragglers, drains."""

import pytest
from clusters import EXACT_AFTER_RELAXED, LATE_ROWS, cases
from hypothesis import example, given
from hypothesis import strategies as st
from pipeline_properties import PROPERTIES

from dorylus.pipeline import Scheduler
from dorylus.servers.parameter.stash import Stash
from draws import draws


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@draws(20)
@given(case=cases(staleness=st.none()))
def test_of_exact_runs(holds, case):
    holds(case, Scheduler, Stash)


@pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)
@draws(30)
@example(case=LATE_ROWS)
@example(case=EXACT_AFTER_RELAXED)
@given(case=cases(staleness=st.sampled_from([1, 0, 2, 3])))
def test_of_asynchronous_runs(holds, case):
    holds(case, Scheduler, Stash)
