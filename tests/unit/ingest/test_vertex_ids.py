"""Numbers for ids that are numbers: taken as they are, or given in order of appearance."""

import hypothesis.strategies as st
import numpy as np
import pytest
from edge_batches import Listed, batch_of
from hypothesis import given

import dorylus.ingest.numbering as numbering
from dorylus.errors import DataError
from dorylus.ingest.numbering import DenseIds, MappedNumbers

BIG = 2**63 - 1


def test_dense_ids_are_taken_as_they_are() -> None:
    numbering = DenseIds()
    assert numbering.num_vertices == 0
    source, destination = numbering.ends(batch_of([(3, 0), (1, 7)]))
    assert source.dtype == destination.dtype == np.int32
    assert (source.tolist(), destination.tolist()) == ([3, 1], [0, 7])
    assert numbering.num_vertices == 8
    numbering.ends(batch_of([(2, 2)]))
    numbering.ends(batch_of([]))
    assert numbering.num_vertices == 8
    assert np.concatenate(list(numbering.original())).tolist() == list(range(8))


@pytest.mark.parametrize("edge", [(0, -1), (-1, 0), (0, 2**31 - 1), (BIG, 0)])
def test_a_number_that_cannot_be_dense_is_refused_with_the_cure(edge: tuple[int, int]) -> None:
    numbering = DenseIds()
    numbering.ends(batch_of([(0, 2**31 - 2)] * 5))
    with pytest.raises(DataError, match=rf"edge {edge[0]} -> {edge[1]} \(number 1\) .* 0 to 2,147,483,646.*ids='map'"):
        numbering.ends(batch_of([(0, 1), edge]))


def test_a_given_number_of_vertices_is_kept() -> None:
    numbering = DenseIds(10)
    numbering.ends(batch_of([(0, 9)]))
    assert numbering.num_vertices == 10
    with pytest.raises(DataError, match=r"edge 0 -> 10 .* 0 to 9. Give a larger num_vertices, or number any other"):
        numbering.ends(batch_of([(0, 10)]))


edges = st.lists(st.tuples(*[st.integers(-3, 3) | st.integers(-BIG, BIG)] * 2), max_size=60)


@given(edges, st.integers(1, 20))
def test_mapped_ids_do_not_depend_on_how_the_input_is_cut(given_edges: list[tuple[int, int]], size: int) -> None:
    numbering = MappedNumbers()
    parts = [given_edges[begin : begin + size] for begin in range(0, len(given_edges), size)]
    numbers = [tuple(pair) for part in parts for pair in zip(*numbering.ends(batch_of(part)), strict=True)]
    order = list(dict.fromkeys(end for edge in given_edges for end in edge))
    assert numbering.num_vertices == len(order)
    assert [id_ for block in numbering.original() for id_ in block.tolist()] == order
    assert [(order[a], order[b]) for a, b in numbers] == given_edges


def test_original_ids_come_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "BLOCK_IDS", 3)
    mapped = MappedNumbers()
    mapped.ends(batch_of([(10, 20), (30, 40), (50, 60), (70, 10)]))
    assert [block.tolist() for block in mapped.original()] == [[10, 20, 30], [40, 50, 60], [70]]
    assert [block.tolist() for block in DenseIds(4).original()] == [[0, 1, 2], [3]]


def test_listed_vertices_come_first_and_others_after() -> None:
    numbering = MappedNumbers(vertices=Listed([30, 10], [20]))
    assert numbering.num_vertices == 3
    source, destination = numbering.ends(batch_of([(10, 5), (20, 30)]))
    assert (source.tolist(), destination.tolist()) == ([1, 2], [3, 0])


def test_a_fixed_list_of_vertices_refuses_others_by_name() -> None:
    numbering = MappedNumbers(vertices=Listed([30, 10]), fixed=True)
    numbering.ends(batch_of([(30, 10)] * 4))
    with pytest.raises(DataError, match=r"edge 10 -> -77 \(number 1\) has the end -77, which is not among the 2 "):
        numbering.ends(batch_of([(30, 10), (10, -77)]))
    assert numbering.num_vertices == 2


def test_a_vertex_listed_twice_is_refused() -> None:
    with pytest.raises(DataError, match="names 30 twice, again at number 1"):
        MappedNumbers(vertices=Listed([30, 10], [20, 30]))


def test_a_table_that_would_pass_its_memory_is_refused() -> None:
    numbering = MappedNumbers(memory_bytes=MappedNumbers.bytes_for(70_000))
    numbering.ends(batch_of([(i, -1) for i in range(69_999)]))
    with pytest.raises(DataError, match=r"ids of about [\d,]+ vertices take [\d,]+ bytes, .*give more memory"):
        numbering.ends(batch_of([(i, -1) for i in range(10**6)]))
    assert MappedNumbers.bytes_for(numbering.num_vertices) <= MappedNumbers.bytes_for(70_000)


def test_names_are_refused_where_numbers_are_required() -> None:
    for each in (DenseIds(), MappedNumbers()):
        with pytest.raises(DataError, match="the ends of edges are names"):
            each.ends(batch_of([("a", "b")]))
