import pytest

from dorylus.files import FileTooLargeError, read_small


@pytest.mark.parametrize("size", [0, 1, 99, 100])
def test_a_file_of_at_most_so_many_bytes_is_read_whole(tmp_path, size):
    (tmp_path / "file").write_bytes(b"x" * size)
    assert read_small(tmp_path / "file", most_bytes=100) == b"x" * size


def test_a_file_of_one_byte_more_is_refused_by_its_name(tmp_path):
    (tmp_path / "file").write_bytes(b"x" * 101)
    with pytest.raises(FileTooLargeError, match=r"^file has more than 100 bytes, the most of a file of its kind$"):
        read_small(tmp_path / "file", most_bytes=100)


def test_a_large_file_is_refused_before_it_is_in_memory(tmp_path, fill_with_zeros, little_memory):
    fill_with_zeros(tmp_path / "file")
    with little_memory(), pytest.raises(FileTooLargeError):
        read_small(tmp_path / "file")
