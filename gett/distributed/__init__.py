"""Contractions over many processes: `contract` sums the slices of a plan over an executor or MPI ranks."""

from gett.distributed.contract import contract
from gett.distributed.reports import Report

__all__ = ["Report", "contract"]
