"""From a plan to schedules: what may be tried, ranked by the cost model, lowered to complete records."""
