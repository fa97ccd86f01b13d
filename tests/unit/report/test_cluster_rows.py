import pytest
from log_of_a_run import cluster_run_record, epoch_record, result_record, run_record

from dorylus.report.closing_table import bar, cluster, rows
from dorylus.report.summary import Summary, summarise

MIB = 2**20


def table_rows(*records):
    return dict(rows(summarise(records)))


def test_a_single_exact_server_has_no_rows_about_servers():
    busy = {"busy": {"cores": 0.2, "pool": 0.1, "network": 0.0}, "traffic": {"weights": MIB}, "ages": {}, "waits": 0}
    table = table_rows(run_record(), epoch_record(1, **busy), result_record(**busy, servers=1, mode="pipe"))
    assert not set(table) & {"servers", "busy", "sent per epoch", "age of values read", "waited at the bound"}


def test_servers_and_mode_are_reported():
    assert table_rows(cluster_run_record())["servers"] == (
        "4 graph servers, 2 parameter servers, async with staleness 1"
    )
    assert table_rows(cluster_run_record(mode="pipe", parameter_servers=1))["servers"] == (
        "4 graph servers, 1 parameter server"
    )
    assert table_rows(cluster_run_record(servers=1, parameter_servers=1, staleness=0))["servers"] == (
        "1 graph server, 1 parameter server, async with staleness 0"
    )


def test_busy_is_a_share_of_the_time_in_epochs():
    epochs = [epoch_record(k, 0.5, busy={"cores": 0.25, "pool": 0.1 * k, "network": 0.0}) for k in (1, 2)]
    assert table_rows(cluster_run_record(), *epochs)["busy"] == "cores 50 % · pool 30 % of the time"


def test_traffic_is_reported_per_epoch_in_the_order_of_its_steps():
    traffic = {"weights": 2048, "ghosts": 3 * MIB, "of tomorrow": 1024, "weight_exchange": 0}
    epochs = [epoch_record(1, traffic=traffic), epoch_record(2, traffic={"ghosts": MIB})]
    assert table_rows(cluster_run_record(), *epochs)["sent per epoch"] == (
        "2.0 MiB ghosts · 1 KiB weights · 512 bytes of tomorrow"
    )


def test_rows_sent_in_less_than_float32_are_reported():
    record = cluster_run_record(ghost_precision="bf16")
    epoch = epoch_record(1, traffic={"ghosts": 3 * MIB, "ghost_gradients": MIB})
    assert table_rows(record, epoch)["sent per epoch"] == "3.0 MiB ghosts · 1.0 MiB ghost gradients (ghosts in bf16)"
    assert "sent per epoch" not in table_rows(record, epoch_record(1))


def test_ages_are_reported_as_shares_with_the_bound_and_drawn_as_bars():
    epochs = [epoch_record(1, ages={"0": 500}), epoch_record(2, ages={"0": 250, "1": 125, "-1": 125})]
    assert table_rows(cluster_run_record(), *epochs)["age of values read"].splitlines() == [
        "-1: 12.5 % · 0: 75.0 % · 1: 12.5 % (bound 2)",
        "-1 ███",
        " 0 ██████████████████",
        " 1 ███",
    ]


def test_ages_beyond_the_displayed_range_are_combined():
    ages = {str(age): 1 for age in range(-6, 10)}
    text = table_rows(cluster_run_record(staleness=8), epoch_record(1, ages=ages))["age of values read"]
    assert text.splitlines()[0].startswith("-3 and less: 25.0 % · -2: 6.2 %")
    assert text.splitlines()[0].endswith("6 and more: 25.0 % (bound 9)")


@pytest.mark.parametrize(
    ("share", "drawn"), [(0.0, ""), (0.0001, "▏"), (0.5, "█" * 12), (0.51, "█" * 12 + "▎"), (1.0, "█" * 24)]
)
def test_a_bar_is_as_long_as_its_share_and_empty_only_for_zero(share, drawn):
    assert bar(share) == drawn


@pytest.mark.parametrize(("waits", "expected"), [(12, "12 times"), (1, "1 time")])
def test_waiting_at_the_bound_is_counted(waits, expected):
    assert table_rows(cluster_run_record(), epoch_record(1, waits=waits))["waited at the bound"] == expected
    assert "waited at the bound" not in table_rows(cluster_run_record(), epoch_record(1, waits=0))


def test_the_result_knows_epochs_from_before_a_resume():
    seen = epoch_record(6, traffic={"ghosts": MIB}, ages={"0": 1}, waits=1, busy={"cores": 0.5})
    whole = {"traffic": {"ghosts": 12 * MIB}, "ages": {"1": 4}, "waits": 3, "busy": {"cores": 0.25}, "epochs": 6}
    table = table_rows(cluster_run_record(), seen, result_record(**whole))
    assert table["sent per epoch"] == "2.0 MiB ghosts"
    assert table["age of values read"].startswith("1: 100.0 % (bound 2)")
    assert (table["waited at the bound"], table["busy"]) == ("3 times", "cores 25 % of the time")


def test_the_switch_to_synchronous_epochs_is_reported_with_the_epochs():
    records = [cluster_run_record(), epoch_record(40), {"kind": "synchronous", "epoch": 40, "score": 0.79}]
    assert table_rows(*records)["epochs"] == "40 (synchronous from epoch 41 on)"
    stop = {"kind": "stop", "reason": "target_accuracy", "epoch": 50}
    assert table_rows(*records, epoch_record(50), stop)["epochs"] == (
        "50 (synchronous from epoch 41 on; target accuracy reached)"
    )


def test_remote_servers_are_reported_with_the_number_of_their_machines():
    summary = Summary()
    summary.config = {"servers": 3}
    servers = {"graph": [("a", 1), ("b", 2), ("b", 3)], "parameter": [("c", 1)]}
    summary.add({"kind": "cluster", "what": "session", "session": 1, "servers": servers})
    assert cluster(summary) == "3 graph servers, 1 parameter server, on 3 machines"


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([], None),
        ([{"what": "fault"}, {"what": "recovered"}], "1"),
        ([{"what": "fault"}, {"what": "refused", "messages": 1}], "1, 1 late message refused"),
        (
            [
                {"what": "fault"},
                {"what": "refused", "messages": 2},
                {"what": "fault"},
                {"what": "refused", "messages": 3},
            ],
            "2, 5 late messages refused",
        ),
    ],
)
def test_faults_are_counted_with_the_late_messages(records, expected):
    found = table_rows(cluster_run_record(), epoch_record(1), *({"kind": "cluster", **each} for each in records))
    assert found.get("faults") == expected
