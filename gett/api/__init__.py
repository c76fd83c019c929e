"""The public functions, the plans that they make and keep, and what plans say of themselves."""
