"""How long schedules should take, and what limits them. Estimates rank; they are not measurements."""
