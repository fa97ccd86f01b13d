"""The memory that control groups leave a process, read from trees of files like those of a kernel."""

from dorylus.process_memory import room_in_groups

MIB = 2**20
FIRST, SECOND = "sys/fs/cgroup/memory", "sys/fs/cgroup"


def tree(root, cgroup):
    """Writes the file in which a process finds its groups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)


def group(root, folder, **files):
    """A group: its files, whose names begin with memory_ for memory and a dot."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / folder / name.replace("memory_", "memory.", 1)).write_text(f"{content}\n")


def test_the_limit_of_the_own_group_less_the_memory_of_others_in_it(tmp_path):
    tree(tmp_path, "0::/user/job\n")
    group(tmp_path, f"{SECOND}/user/job", memory_max=100 * MIB, memory_current=70 * MIB)
    assert room_in_groups(30 * MIB, tmp_path) == [60 * MIB]


def test_the_page_cache_counts_as_room(tmp_path):
    tree(tmp_path, "0::/job\n")
    memory_stat = (
        f"anon {20 * MIB}\nfile {50 * MIB}\nactive_file {30 * MIB}\ninactive_file {10 * MIB}\nslab_reclaimable 0"
    )
    group(tmp_path, f"{SECOND}/job", memory_max=100 * MIB, memory_current=70 * MIB, memory_stat=memory_stat)
    assert room_in_groups(0, tmp_path) == [70 * MIB]


def test_every_group_above_counts_and_those_without_a_limit_do_not(tmp_path):
    tree(tmp_path, "0::/a/b/c\n")
    group(tmp_path, f"{SECOND}/a/b/c", memory_max="max", memory_current=5 * MIB)
    group(tmp_path, f"{SECOND}/a/b", memory_max=90 * MIB, memory_current=30 * MIB)
    group(tmp_path, f"{SECOND}/a", memory_max=80 * MIB, memory_current=50 * MIB)
    assert sorted(room_in_groups(0, tmp_path)) == [30 * MIB, 60 * MIB]


def test_groups_of_the_first_version_are_read_by_their_names(tmp_path):
    tree(tmp_path, "5:cpu,cpuacct:/other\n4:memory:/docker/1\n1:name=systemd:/x\n")
    memory_stat = f"cache {40 * MIB}\ninactive_file 0\ntotal_inactive_file {25 * MIB}\ntotal_active_file {15 * MIB}"
    files = {"memory_limit_in_bytes": 100 * MIB, "memory_usage_in_bytes": 90 * MIB, "memory_stat": memory_stat}
    group(tmp_path, f"{FIRST}/docker/1", **files)
    group(tmp_path, FIRST, memory_limit_in_bytes=9223372036854771712, memory_usage_in_bytes=10**9)
    assert min(room_in_groups(10 * MIB, tmp_path)) == 60 * MIB


def test_a_container_that_sees_its_own_group_as_the_topmost_finds_it_there(tmp_path):
    tree(tmp_path, "4:memory:/kubepods/pod7/box\n0::/kubepods/pod7/box\n")
    group(tmp_path, FIRST, memory_limit_in_bytes=64 * MIB, memory_usage_in_bytes=24 * MIB)
    assert room_in_groups(4 * MIB, tmp_path) == [44 * MIB]


def test_a_parent_group_that_does_not_count_its_children_is_skipped(tmp_path):
    tree(tmp_path, "4:memory:/job\n")
    group(tmp_path, f"{FIRST}/job", memory_limit_in_bytes=64 * MIB, memory_usage_in_bytes=0)
    group(tmp_path, FIRST, memory_limit_in_bytes=MIB, memory_usage_in_bytes=0, memory_use_hierarchy=0)
    assert room_in_groups(0, tmp_path) == [64 * MIB]


def test_a_group_outside_the_mounted_tree_is_ignored(tmp_path):
    tree(tmp_path, "0::/../../other\n")
    group(tmp_path, "sys/other", memory_max=MIB, memory_current=0)
    group(tmp_path, SECOND, memory_max=50 * MIB, memory_current=0)
    assert room_in_groups(0, tmp_path) == [50 * MIB]


def test_a_limit_is_never_exceeded_and_room_is_never_negative(tmp_path):
    tree(tmp_path, "0::/a/b\n")
    group(tmp_path, f"{SECOND}/a/b", memory_max=50 * MIB, memory_current=10 * MIB)  # we came from another group
    group(tmp_path, f"{SECOND}/a", memory_max=10 * MIB, memory_current=90 * MIB)
    assert room_in_groups(40 * MIB, tmp_path) == [50 * MIB, 0]


def test_a_limit_without_a_usage_is_taken_as_it_is(tmp_path):
    tree(tmp_path, "0::/\n")
    group(tmp_path, SECOND, memory_max=50 * MIB)
    assert room_in_groups(0, tmp_path) == [50 * MIB]


def test_a_system_without_groups_has_none(tmp_path):
    assert room_in_groups(0, tmp_path) == []
