"""`python -m llmzero` is `llmzero`."""

import sys

from llmzero.cli import main

sys.exit(main())
