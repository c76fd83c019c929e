"""Sliced contractions: plans within a limit of memory, and slices that other devices and processes sum."""
