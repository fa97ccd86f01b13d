import pytest

from dorylus.pools.autotune import Epochs
from dorylus.pools.limited import Completion


def boundaries(tasks):
    """For each task that ends: "|" before it if it begins an epoch, "|" after it if it ends one."""
    epochs, drawn = Epochs(), ""
    for task in tasks:
        completion = Completion(task.lower(), 0 if task.islower() else 1, 0.0, 0.0, False, 0.0, 0.0, 1)
        drawn += ("|" if epochs.begins(completion) else "") + task + ("|" if epochs.ends(completion) else "")
    return drawn


def test_the_first_epoch_is_over_when_a_task_comes_again():
    assert boundaries("abcab") == "abc|ab"


def test_a_later_epoch_is_over_when_all_tasks_of_the_one_before_have_ended_in_any_order():
    assert boundaries("abcbacacb") == "abc|bac|acb|"


def test_the_same_step_of_another_interval_is_another_task():
    assert boundaries("aAbBAaBb") == "aAbB|AaBb|"


@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_evaluation_in_between_does_not_shift_the_rest(after):
    drawn = boundaries("abc" * after + "xy" + "abc" * 3)
    assert drawn.replace("|", "") == "abc" * after + "xy" + "abc" * 3
    assert drawn.endswith("abc|abc|")


def test_an_evaluation_after_every_epoch_belongs_to_it():
    assert boundaries("abcxy" * 3) == "abcxy|abcxy|abcxy|"


def test_an_epoch_may_be_a_single_task():
    assert boundaries("aaa") == "a|a|a|"


def test_where_intervals_run_ahead_epochs_stay_about_as_long():
    tasks = "aAbB" + "abaABbAB" * 10  # one interval is always ahead
    lengths = [len(part) for part in boundaries(tasks).split("|") if part]
    assert min(lengths) >= 2
    assert max(lengths) <= 6
