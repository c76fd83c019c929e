"""Plans, and the calls that they take: from a request to steps that run on arrays."""
