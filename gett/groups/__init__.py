"""Many contractions in one launch: lists of problems, tables of them on the device, sizes that stand there."""
