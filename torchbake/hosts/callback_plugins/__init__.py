"""What runs in Ansible's own process; and the variable by which that learns of its file."""

FILE = "TORCHBAKE_HOST_RESULTS"
