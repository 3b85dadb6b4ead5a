"""What stands where: clusters, lines, backends, policies and rules as the config names them. Pure values, no I/O."""

from gateway.topology.checking import problems
from gateway.topology.places import BackendPlace, Cluster, Line, Problem, S3Place
from gateway.topology.policies import DEFAULT, NEAR, Policy, Rule, Topology

__all__ = [
    "DEFAULT", "NEAR", "BackendPlace", "Cluster", "Line", "Policy", "Problem", "Rule", "S3Place", "Topology",
    "problems",
]  # fmt: skip
