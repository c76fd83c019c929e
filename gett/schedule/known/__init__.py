"""Schedules that were the fastest of those timed on a GPU, shipped as data."""
