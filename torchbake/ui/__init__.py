"""The output for people and programs: messages, tables, JSON results, and the progress of long work."""
