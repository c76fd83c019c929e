"""Searches for schedules of the Hopper main loops: tiles of wgmma and of float64, boxes of tensor maps, stores."""
