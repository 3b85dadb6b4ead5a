"""What stands where: clusters, backends and policies as the config names them. Pure values, no I/O."""

from gateway.topology.places import BackendPlace, Cluster, Policy, Problem, Topology

__all__ = ["BackendPlace", "Cluster", "Policy", "Problem", "Topology"]
