"""A cluster rehearsed on one machine: the runtime as it is, with layers and links that take their planned time."""

from bapipe_executor.rehearsal.cluster import EmulatedCluster, rehearsal_faults
from bapipe_executor.rehearsal.stand_in import batches, loss, network

__all__ = ["EmulatedCluster", "batches", "loss", "network", "rehearsal_faults"]
