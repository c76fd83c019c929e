"""The public functions: from the arguments of a call to its plan, and to its result."""
