"""The topology: clusters, lines, backends, policies and rules as the config names them. Pure values, no I/O."""

from gateway.topology.checking import problems
from gateway.topology.places import BackendPlace, Cluster, Line, Problem, S3Place
from gateway.topology.policies import DEFAULT, NEAR, RECHECK_SECONDS, Policy, Rule, Topology

__all__ = [
    "DEFAULT", "NEAR", "RECHECK_SECONDS", "BackendPlace", "Cluster", "Line", "Policy", "Problem", "Rule", "S3Place",
    "Topology", "problems",
]  # fmt: skip
