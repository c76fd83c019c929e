"""Tiles as searches choose them and cost models look at them: records and how they follow from boxes and strides."""
