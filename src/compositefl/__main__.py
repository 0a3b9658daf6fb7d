"""`python -m compositefl`: the command line, where its script is not on the path."""

import sys

from compositefl.cli import main

sys.exit(main())
