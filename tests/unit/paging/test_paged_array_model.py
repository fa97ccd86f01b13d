"""After any actions on spans, by one thread or several, their users read the content of a plain array."""

import threading
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scratch_files import MemoryFile, some_io_threads

from dorylus.paging import PAGE, IoThreads, PagedArray

sizes = st.lists(
    st.sampled_from([0, 1, 100, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 2 * PAGE + 50]), min_size=1, max_size=6
)
actions = st.sampled_from(["check", "rewrite", "rewrite and keep", "hold", "drop", "ahead", "leave", "discard", "all"])
orders = st.lists(st.tuples(actions, st.integers(0, 5)), max_size=40)


@dataclass
class Model:
    """A paged array compared with a plain one; the content of forgotten spans is undefined."""

    bounds: list[int]
    paged: PagedArray
    plain: NDArray[np.uint8]
    forgotten: set[int] = field(default_factory=set)
    held: list[int] = field(default_factory=list)
    written: int = 0

    @classmethod
    def of(cls, sizes: list[int], io_threads: IoThreads) -> "Model":
        bounds = [0, *accumulate(sizes)]
        file = MemoryFile(-(-bounds[-1] // PAGE) * PAGE)
        return cls(
            bounds, PagedArray((bounds[-1],), np.uint8, bounds, file, io_threads), np.zeros(bounds[-1], np.uint8)
        )

    def part(self, span: int) -> slice:
        """The bytes of a span."""
        return slice(self.bounds[span], self.bounds[span + 1])

    def check(self, span: int) -> None:
        """A user of a span finds its content."""
        self.paged.acquire(span)
        if span not in self.forgotten:
            np.testing.assert_array_equal(self.paged.array[self.part(span)], self.plain[self.part(span)])
        self.paged.release(span, leave=True)

    def rewrite(self, span: int, *, leave: bool) -> None:
        """A user fills a span."""
        self.written = self.written % 255 + 1
        self.paged.acquire(span)
        self.paged.array[self.part(span)] = self.plain[self.part(span)] = self.written
        self.paged.wrote(span)
        self.forgotten.discard(span)
        self.paged.release(span, leave=leave)

    def do(self, action: str, span: int) -> None:
        """Carry out one action."""
        if action == "check":
            self.check(span)
        elif action.startswith("rewrite"):
            self.rewrite(span, leave=action == "rewrite")
        elif action == "hold":
            self.paged.acquire(span)
            self.held.append(span)
        elif action == "drop" and self.held:
            self.paged.release(self.held.pop(), leave=True)
        elif action in ("ahead", "leave"):
            getattr(self.paged, action)(span)
        elif action == "discard":
            self.forgotten.add(span)
            self.paged.discard(span)
        elif action == "all":
            self.paged.acquire_all()
            for each in set(range(self.paged.num_spans)) - self.forgotten:
                np.testing.assert_array_equal(self.paged.array[self.part(each)], self.plain[self.part(each)])
            self.paged.release_all()


@settings(max_examples=40)
@given(sizes, orders)
def test_spans_agree_with_a_plain_array(sizes: list[int], order: list[tuple[str, int]]) -> None:
    with some_io_threads() as io_threads:
        model = Model.of(sizes, io_threads)
        for action, span in order:
            model.do(action, span % len(sizes))
        for span in range(len(sizes)):
            model.check(span)


own_actions = st.sampled_from(["check", "rewrite", "rewrite and keep", "ahead", "leave", "discard"])


@settings(max_examples=25)
@given(
    sizes.filter(lambda drawn: len(drawn) > 1),
    st.lists(st.lists(own_actions, min_size=5, max_size=30), min_size=6, max_size=6),
    st.lists(st.tuples(st.sampled_from(["ahead", "leave"]), st.integers(0, 5)), max_size=60),
)
def test_spans_agree_with_a_plain_array_under_concurrent_threads(
    sizes: list[int], orders: list[list[str]], concurrent: list[tuple[str, int]]
) -> None:
    failures: list[BaseException] = []
    with some_io_threads() as io_threads:
        shared = Model.of(sizes, io_threads)

        def own(span: int) -> None:
            model = Model(shared.bounds, shared.paged, shared.plain, written=span * 30)
            try:
                for action in orders[span]:
                    model.do(action, span)
                model.check(span)
            except BaseException as error:
                failures.append(error)

        def meddle() -> None:
            for action, span in concurrent:
                getattr(shared.paged, action)(span % len(sizes))

        threads = [threading.Thread(target=own, args=(span,)) for span in range(len(sizes))]
        threads.append(threading.Thread(target=meddle))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "a thread waits for ever"
    assert not failures, failures
