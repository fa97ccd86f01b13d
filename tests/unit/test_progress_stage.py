import threading

from dorylus.progress import ProgressStage


def test_a_stage_tells_its_beginning_and_every_step():
    heard = []
    stage = ProgressStage("copying", 10, heard.append)
    stage.add(4)
    stage.add(6)
    assert heard == [("copying", 0, 10, "bytes"), ("copying", 4, 10, "bytes"), ("copying", 10, 10, "bytes")]


def test_steps_of_many_threads_are_all_counted_and_told_in_order():
    heard = []
    stage = ProgressStage("copying", 800, lambda progress: heard.append(progress.done))
    threads = [threading.Thread(target=lambda: [stage.add(1) for _ in range(100)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == list(range(801))
