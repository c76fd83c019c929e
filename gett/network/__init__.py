"""From many operands to steps of one or two: the path, steps that are too large for one launch, and how steps run."""
