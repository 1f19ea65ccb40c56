"""What people see: messages, tables, JSON results, and the progress of long work."""
