"""The callback in Ansible's process, and the environment variable with the path of its file."""

FILE = "TORCHBAKE_HOST_RESULTS"
