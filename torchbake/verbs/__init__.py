"""One module a verb: what the command line can do."""
