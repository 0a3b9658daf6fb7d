"""When a damped Newton step is taken, and how the damping follows: one rule for all servers."""

ACCEPTED = 1e-4  # share of the promised decrease that a trial point must keep
GOOD, POOR = 0.75, 0.25  # shares that lower and raise the damping
FACTOR = 10.0  # of the damping, up and down
FIRST = 1e-2  # the damping after the first rejection
