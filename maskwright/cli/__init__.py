"""Programs: a command line comes in, what it prints and an exit code go out. A command is a
function of ``argv`` beside its parser; a file is named for the first of its commands."""
