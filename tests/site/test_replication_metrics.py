"""The metrics of a site's replication status."""

from __future__ import annotations

from gateway.site import replication_status
from gateway.site.processes import replication_metrics


def test_a_policy_that_is_late_is_a_metric_until_it_is_not() -> None:
    late = replication_status.RecoveryPoint("default", 7, 9.0, 1.0, True)
    behind = replication_status.ReplicationStatus(
        (), (replication_status.Backlog("place", 7, 70, 9.0),), (late,), False, ()
    )
    replication_metrics.set_gauges(behind, ["default", "far"])
    assert (replication_metrics.LATE.values[("default",)], replication_metrics.POINT.values[("default",)]) == (1, 9.0)
    assert (replication_metrics.LATE.values[("far",)], replication_metrics.BEHIND.values[("place",)]) == (0, 7)
    replication_metrics.set_gauges(behind._replace(backlog=(), points=()), ["default", "far"])
    assert (replication_metrics.LATE.values[("default",)], replication_metrics.POINT.values[("default",)]) == (0, 0)
    assert (replication_metrics.OLDEST.values[("place",)], replication_metrics.BEHIND.values[("place",)]) == (0, 0)
