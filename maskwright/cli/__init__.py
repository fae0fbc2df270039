"""Programs: the only place where all parts meet. A command line comes in,
what it prints and an exit code go out. A command is a function of ``argv``, beside its parser."""
