"""Lets ``python -m uqformer`` do what the command ``uqformer`` does."""

from uqformer.cli import main

raise SystemExit(main())
