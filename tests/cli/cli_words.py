"""Options that several tests share."""

import shlex

# A problem that runs in a moment. Tests that keep to it share its compiled programs.
SMALL = shlex.split(
    "--hidden 4 --clients 4 --batch-size 8 --regularizer l1:0.01 --rounds 4 --eval-every 2"
)
STEPS = ["--local-steps", "2", "--local-lr", "0.1"]
