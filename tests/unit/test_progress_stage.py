import threading

from dorylus.progress import ProgressStage


def test_a_stage_reports_its_beginning_and_every_step():
    reports = []
    stage = ProgressStage("copying", 10, reports.append)
    stage.add(4)
    stage.add(6)
    assert reports == [("copying", 0, 10, "bytes"), ("copying", 4, 10, "bytes"), ("copying", 10, 10, "bytes")]


def test_steps_of_many_threads_are_all_counted_and_reported_in_order():
    reports = []
    stage = ProgressStage("copying", 800, lambda progress: reports.append(progress.done))
    threads = [threading.Thread(target=lambda: [stage.add(1) for _ in range(100)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reports == list(range(801))
